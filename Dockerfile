# An image that trains on a GPU (or without one), with every command as its entry point:
#
#   docker build --build-arg NERF_COMMIT="$(git rev-parse --short HEAD)" -t nerf-voxel .
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/data" nerf-voxel train dataset.root=/data/SCENE
#
# Runs go to outputs/ of the folder behind -v. Settings and their defaults: docker run --rm nerf-voxel train --help
ARG CUDA=13.0.2
ARG UBUNTU=24.04

FROM nvidia/cuda:${CUDA}-devel-ubuntu${UBUNTU} AS builder
# The release's security updates, not fixed versions, of what compiles.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ python3-venv \
 && rm -rf /var/lib/apt/lists/*
# The library is compiled against the PyTorch that will load it: so this one comes first, and no build isolation.
ARG TORCH=torch==2.13.0
RUN python3 -m venv /opt/nerf \
 && /opt/nerf/bin/pip install --no-cache-dir "${TORCH}" "setuptools>=77" ninja
WORKDIR /src
COPY . .
ARG EXTRAS=view,export,capture,log,plot
ARG NERF_CUDA_ARCHS="75 80 90 120"
RUN NERF_CUDA_ARCHS="${NERF_CUDA_ARCHS}" /opt/nerf/bin/pip install --no-cache-dir --no-build-isolation ".[${EXTRAS}]"

# The library brings its CUDA runtime, PyTorch its CUDA libraries: of NVIDIA's images the smallest is enough.
FROM nvidia/cuda:${CUDA}-base-ubuntu${UBUNTU}
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1001 nerf \
 && install --directory --owner nerf /data
COPY --from=builder /opt/nerf /opt/nerf
# What results name as their commit; caches go where any user may write.
ARG NERF_COMMIT=unknown
ENV NERF_COMMIT=${NERF_COMMIT} \
    PATH=/opt/nerf/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/tmp
USER 1001
WORKDIR /data
# nerf view: docker run -p 8080:8080 ... view RUN host=0.0.0.0
EXPOSE 8080
ENTRYPOINT ["nerf"]
CMD ["--help"]
