//go:build linux

package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Image is an image of one layer, which is written without Docker.
type Image struct {
	Name       string            // with a tag
	Files      map[string]string // by absolute path in the image, files of this machine
	Links      map[string]string // by absolute path in the image, targets of symbolic links
	Temporary  []string          // folders in which everybody may write
	Entrypoint []string
	Command    []string
	User       string
	Env        []string
}

const search = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"

// Write writes the image to a tar file in the layout of the Open Container Initiative. The
// same files give the same bytes.
func (i Image) Write(file string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	env := append([]string{search}, i.Env...)
	config, err1 := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": env, "Entrypoint": i.Entrypoint, "Cmd": i.Command, "User": i.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	blob := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(b), "size": len(b)}
	}
	manifest, err2 := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob("config.v1+json", config), "layers": []any{blob("layer.v1.tar", layer)},
	})
	entry := blob("manifest.v1+json", manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": full(i.Name)}
	index, err3 := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{entry}})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return err
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	t := tar.NewWriter(out)
	for _, e := range []struct {
		name string
		text []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{"blobs/sha256/" + digest(layer)[7:], layer},
		{"blobs/sha256/" + digest(config)[7:], config},
		{"blobs/sha256/" + digest(manifest)[7:], manifest},
	} {
		if err == nil {
			err = t.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.text))})
		}
		if err == nil {
			_, err = t.Write(e.text)
		}
	}
	if err == nil {
		err = t.Close()
	}
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

// full returns the name under which a node looks for an image.
func full(name string) string {
	first, _, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return "docker.io/library/" + name
	case strings.ContainsAny(first, ".:") || first == "localhost":
		return name
	}
	return "docker.io/" + name
}

// layer returns the files of the image as a tar archive.
func (i Image) layer() ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	made := map[string]bool{"/": true, ".": true}
	var folder func(name string, mode int64) error
	folder = func(name string, mode int64) error {
		if made[name] {
			return nil
		}
		made[name] = true
		if err := folder(path.Dir(name), 0o755); err != nil {
			return err
		}
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name[1:] + "/", Mode: mode})
	}
	for _, name := range i.Temporary {
		if err := folder(name, 0o1777); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := folder(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := add(t, name[1:], i.Files[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		if err := folder(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: i.Links[name], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return b.Bytes(), err
}

// add writes a file of this machine to the archive. Who may execute it here may do so in
// the image.
func add(t *tar.Writer, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}
