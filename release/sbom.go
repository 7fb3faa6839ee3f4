package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// component is a component of a CycloneDX document, https://cyclonedx.org/docs/1.6/json/.
type component struct {
	Type       string              `json:"type"`
	Ref        string              `json:"bom-ref"`
	Name       string              `json:"name"`
	Version    string              `json:"version"`
	Hashes     []map[string]string `json:"hashes,omitempty"`
	Licences   []map[string]string `json:"licenses,omitempty"` // absent if the licence is not known
	URL        string              `json:"purl,omitempty"`
	Properties []map[string]string `json:"properties,omitempty"`
}

// dependency lists what a component contains.
type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// sbom writes the components of all programs and of the image, as their build information lists them.
func (r *release) sbom(programs []program, modules []module) error {
	licensed := map[string]string{} // by path of the module
	for _, m := range modules {
		licensed[m.path] = m.licence()
	}
	libraries := map[string]component{} // by reference
	library := func(path, version, licence string) string {
		ref := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
		libraries[ref] = component{Type: "library", Ref: ref, Name: path, Version: version, URL: ref, Licences: expression(licence)}
		return ref
	}
	var all []component
	var contents []dependency
	image := dependency{Ref: "image"}
	for _, p := range programs {
		sum := sha256.Sum256(p.data)
		c := component{Type: "application", Ref: p.platform + "/" + p.name, Name: p.name, Version: r.version, Licences: expression("Apache-2.0"),
			Hashes:     []map[string]string{{"alg": "SHA-256", "content": hex.EncodeToString(sum[:])}},
			Properties: []map[string]string{{"name": "shaver:platform", "value": p.platform}}}
		d := dependency{c.Ref, []string{library("std", strings.TrimPrefix(p.info.GoVersion, "go"), "BSD-3-Clause")}}
		for _, m := range p.info.Deps {
			d.DependsOn = append(d.DependsOn, library(m.Path, m.Version, licensed[m.Path]))
		}
		slices.Sort(d.DependsOn)
		all, contents = append(all, c), append(contents, d)
		if strings.HasPrefix(p.platform, "linux/") {
			image.DependsOn = append(image.DependsOn, c.Ref)
		}
	}
	if image.DependsOn != nil {
		for _, m := range modules {
			if strings.HasPrefix(certificates, m.path+"/") && m.path != "golang.org/x/crypto" {
				image.DependsOn = append(image.DependsOn, library(m.path, m.version, m.licence()))
			}
		}
		all = append(all, component{Type: "container", Ref: "image", Name: "shaver", Version: r.version, Licences: expression("Apache-2.0")})
		contents = append(contents, image)
	}
	for _, ref := range sortedKeys(libraries) {
		all = append(all, libraries[ref])
	}
	document := map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"timestamp": r.when.Format("2006-01-02T15:04:05Z"),
			"component": component{Type: "application", Ref: "shaver", Name: "shaver", Version: r.version, Licences: expression("Apache-2.0")},
		},
		"components": all, "dependencies": contents,
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(document); err != nil {
		return err
	}
	return r.write("shaver-"+r.version+".cdx.json", b.Bytes())
}

// expression returns the licences of a component from an SPDX expression, which may be empty.
func expression(licence string) []map[string]string {
	if licence == "" {
		return nil
	}
	return []map[string]string{{"expression": licence}}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
