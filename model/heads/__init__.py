"""Single heads: views, measures of their weights, reach, ablation, and views over all layers."""
