# syntax=docker/dockerfile:1
# Built in one image, run in a slim one without a compiler or pip cache.

ARG PYTHON_VERSION=3.13

FROM python:${PYTHON_VERSION}-slim AS build
# The kernel is compiled with a C compiler, which stays in this stage.
# The distribution's compiler will do; it does not reach the final image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /src
# Build tools stay out of the environment that is copied.
COPY requirements-build.lock requirements-run.lock ./
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes --requirement requirements-build.lock
RUN python -m venv /opt/tsproxy && /opt/tsproxy/bin/pip install --require-hashes --requirement requirements-run.lock
COPY pyproject.toml setup.py README.md ./
COPY proxy ./proxy
COPY catalog ./catalog
COPY rewrite ./rewrite
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/tsproxy/bin/pip install --no-deps /wheels/*.whl

FROM python:${PYTHON_VERSION}-slim
RUN groupadd --system --gid 10001 tsproxy \
    && useradd --system --uid 10001 --gid tsproxy --home-dir /var/lib/tsproxy --create-home tsproxy
COPY --from=build /opt/tsproxy /opt/tsproxy
ENV PATH=/opt/tsproxy/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TSPROXY_LISTEN=0.0.0.0:27018 \
    TSPROXY_STATUS_LISTEN=0.0.0.0:9216 \
    TSPROXY_LOG_FORMAT=json
USER 10001:10001
WORKDIR /var/lib/tsproxy
EXPOSE 27018 9216
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["tsproxy", "health"]
ENTRYPOINT ["tsproxy"]
CMD ["serve"]
