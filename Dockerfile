# Unmask on CPU, as a user without rights; its file system may be read-only. Build: deploy/README.md
# BASE: pin it by digest, python:3.11-slim@sha256:…, so that every build is of the same image (deploy/README.md)
ARG BASE=python:3.11-slim
FROM ${BASE}

# a font with Chinese (5 MB), for the words of pictures as PNG and PDF; without one these are English
RUN apt-get update && apt-get install -y --no-install-recommends fonts-wqy-microhei && rm -rf /var/lib/apt/lists/*

# where torch's CPU builds lie, as PyTorch's site names it; without it pip takes its own, which may bring CUDA's gigabytes
ARG TORCH_INDEX=""
COPY requirements.txt /app/
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep -o '^torch==[^ ]*' /app/requirements.txt)" \
    && pip install --no-cache-dir -r /app/requirements.txt \
    && find /usr/local/lib/python3.11/site-packages -type d -name tests -prune -exec rm -r {} + \
    && useradd --uid 1000 --no-create-home --home-dir /tmp unmask \
    && install -d -o unmask /cache

WORKDIR /app
COPY . .
USER 1000
VOLUME /cache
ENV HOME=/tmp HF_HOME=/cache XDG_CACHE_HOME=/tmp MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 STREAMLIT_SERVER_PORT=8501 STREAMLIT_SERVER_HEADLESS=true \
    UNMASK_METRICS_PORT=9464 UNMASK_MODELS=story,dates
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=8s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://localhost:' + os.environ['UNMASK_METRICS_PORT'] + '/ready')"]
CMD ["streamlit", "run", "serve.py"]
