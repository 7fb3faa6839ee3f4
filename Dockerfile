# The three programs, static, on nothing: docker build --tag shaver:0.2.0 .
# The versions are exact, but they are tags: a registry could give one another image.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd ./cmd
COPY internal ./internal
COPY schemas ./schemas
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/bin/ ./cmd/shaver ./cmd/coordinator ./cmd/worker
# Scratch has no folder for temporary files, but "shaver quickstart" and "shaver score"
# without --nats need one.
RUN mkdir -m 1777 /out/tmp

FROM scratch
# Needed for tls:// addresses of NATS servers with a public certificate.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /
COPY LICENSE THIRD_PARTY.txt /licenses/
USER 65532:65532
ENTRYPOINT ["/bin/shaver"]
