package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Media types of the OCI image format, https://github.com/opencontainers/image-spec.
const (
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a blob of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *ociPlatform      `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type ociPlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// index lists the manifests of an image, one for each platform.
type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// manifest is the image for one platform.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

// imageConfig says how a container of an image runs.
type imageConfig struct {
	ociPlatform
	Created string `json:"created"`
	Config  struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// layout collects the blobs of an image layout.
type layout struct{ blobs map[string][]byte } // by digest in hex

// add adds a blob and returns its descriptor.
func (l *layout) add(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	l.blobs[digest] = data
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}
}

// addJSON adds a document.
func (l *layout) addJSON(mediaType string, document any) (descriptor, error) {
	data, err := json.Marshal(document)
	return l.add(mediaType, data), err
}

// image writes the image for the platforms of Linux as an archive with an OCI image layout. It has what the Dockerfile makes.
func (r *release) image(programs []program, documents []entry) error {
	l := &layout{blobs: map[string][]byte{}}
	all := index{SchemaVersion: 2, MediaType: ociIndex}
	for _, platform := range r.platforms {
		if !strings.HasPrefix(platform, "linux/") {
			continue
		}
		d, err := r.imageFor(l, platform, programs, documents)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}
	if all.Manifests == nil {
		return nil
	}
	top, err := l.addJSON(ociIndex, all)
	// The first name is for skopeo and podman, the second for containerd and Docker.
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/shaver:" + r.version}
	listed, err2 := json.Marshal(index{2, ociIndex, []descriptor{top}})
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	entries := []entry{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, listed}}
	for _, name := range sortedKeys(l.blobs) {
		entries = append(entries, entry{"blobs/sha256/" + name, 0o644, l.blobs[name]})
	}
	var b bytes.Buffer
	if err := writeTar(&b, entries, r.when); err != nil {
		return err
	}
	return r.write("shaver-"+r.version+"-image.tar", b.Bytes())
}

// imageFor adds the image for a platform to l. Its only layer has the programs, the documents, root certificates for the addresses
// of servers, and a folder for temporary files.
func (r *release) imageFor(l *layout, platform string, programs []program, documents []entry) (descriptor, error) {
	entries := []entry{{"bin/", 0o755, nil}}
	for _, p := range programs {
		if p.platform == platform {
			entries = append(entries, entry{"bin/" + p.name, 0o755, p.data})
		}
	}
	entries = append(entries, entry{"etc/", 0o755, nil}, entry{"etc/ssl/", 0o755, nil}, entry{"etc/ssl/certs/", 0o755, nil},
		entry{"etc/ssl/certs/ca-certificates.crt", 0o644, rootCertificates()}, entry{"licenses/", 0o755, nil})
	for _, d := range documents {
		entries = append(entries, entry{"licenses/" + d.name, d.mode, d.data})
	}
	entries = append(entries, entry{"tmp/", 0o777 | fs.ModeSticky, nil})

	var plain bytes.Buffer
	if err := writeTar(&plain, entries, r.when); err != nil {
		return descriptor{}, err
	}
	packed, err := tarGz(entries, r.when)
	if err != nil {
		return descriptor{}, err
	}
	var config imageConfig
	_, config.Architecture, _ = strings.Cut(platform, "/")
	config.OS = "linux"
	config.Created = r.when.Format("2006-01-02T15:04:05Z")
	config.Config.User = "65532:65532"
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} // as Docker sets it for scratch
	config.Config.Entrypoint = []string{"/bin/shaver"}
	config.Config.Labels = map[string]string{"org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0"}
	config.RootFS.Type = "layers"
	sum := sha256.Sum256(plain.Bytes())
	config.RootFS.DiffIDs = []string{"sha256:" + hex.EncodeToString(sum[:])}
	described, err := l.addJSON(ociConfig, config)
	if err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(ociManifest, manifest{2, ociManifest, described, []descriptor{l.add(ociLayer, packed)}})
	d.Platform = &config.ociPlatform
	return d, err
}

// rootCertificates returns Mozilla's root certificates without those that hold for some names only, which a file cannot express.
func rootCertificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}
