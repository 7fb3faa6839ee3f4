package checkpoint

import (
	"encoding/json"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
)

// metaVocabulary is the metadata key of a JSON array with a model.Identity for each field, in
// safetensors files and in .onnx files.
const metaVocabulary = "shaver.vocabulary"

// metaDense is the metadata key of a JSON array with a model.Standard for each dense input, in the same files.
const metaDense = "shaver.dense"

// metaGuards is the metadata key of a JSON array with what replaces the ids of fields that are outside them, in
// safetensors files. It does not affect the digest.
const metaGuards = "shaver.guards"

// Known returns what the file says about the fields and dense inputs.
func (c *Checkpoint) Known() *model.Known {
	logit := c.logit
	if logit == "" && c.graph != nil {
		logit = c.graph.Output
	}
	if !dissect.IsProbability(logit) {
		logit = ""
	}
	names := c.Fields
	if family.Numbered(names) != nil {
		names = nil
	}
	return &model.Known{Logit: logit, File: c.name, Names: names, Fields: c.Identities, Sizes: c.Architecture.FieldDims, Dense: c.denseInputs(), Standards: c.Standards, Ignored: c.Ignored, Tasks: c.Tasks, Output: c.output}
}

// takeMeanings sets Identities, Standards and the guards of ids from the metadata of a file, which may lack them. The
// architecture must be known.
func (c *Checkpoint) takeMeanings(metadata map[string]string) (err error) {
	if c.Identities, err = knownIn(c, metadata, metaVocabulary, func(list []model.Identity) ([]model.Identity, error) {
		return list, model.CheckIdentities(list, c.Architecture.Fields())
	}); err != nil {
		return err
	}
	if c.guards, err = knownIn(c, metadata, metaGuards, func(list []graphComputed) ([]graphComputed, error) { return list, nil }); err != nil {
		return err
	}
	c.Standards, err = knownIn(c, metadata, metaDense, func(list []model.Standard) ([]model.Standard, error) {
		return model.StandardsOf(list, c.denseInputs()) // the file of a slice may have fewer inputs than its model
	})
	return err
}

// knownIn returns what check returns for the JSON array under a key of the metadata of c, or nil without it.
func knownIn[T any](c *Checkpoint, metadata map[string]string, key string, check func(list []T) ([]T, error)) (list []T, err error) {
	text, ok := metadata[key]
	if !ok {
		return nil, nil
	}
	if err = json.Unmarshal([]byte(text), &list); err == nil {
		list, err = check(list)
	}
	if err != nil {
		return nil, fault.Inputf("%s: metadata %s: %w", c.name, key, typeError(err))
	}
	return list, nil
}

// takeProperties sets Identities, Standards, Origins and Scored from the metadata of an .onnx file.
func (c *Checkpoint) takeProperties(metadata map[string]string) error {
	if err := c.takeMeanings(metadata); err != nil {
		return err
	}
	return c.takeHistory(metadata)
}

// takeHistory sets Origins, Scored and Recipe from the metadata of a file, which may lack them.
func (c *Checkpoint) takeHistory(metadata map[string]string) (err error) {
	c.Recipe = metadata[metaRecipe]
	if c.Origins, err = originsOf(metadata); err != nil {
		return c.inputf("%w", err)
	}
	if c.Scored, err = arrayIn[Scored](metadata, metaScored, "objects with dataset and splits"); err != nil {
		return c.inputf("%w", err)
	}
	return nil
}

// properties returns the metadata with Identities, Standards, Origins, Scored and Recipe, which .onnx files have too.
func (c *Checkpoint) properties() map[string]string {
	metadata := map[string]string{}
	if c.Identities != nil {
		metadata[metaVocabulary] = string(mustMarshal(c.Identities))
	}
	if c.Standards != nil {
		metadata[metaDense] = string(mustMarshal(c.Standards))
	}
	if c.Origins != nil {
		metadata[metaOrigins] = string(mustMarshal(c.Origins))
	}
	if c.Scored != nil {
		metadata[metaScored] = string(mustMarshal(c.Scored))
	}
	if c.Recipe != "" {
		metadata[metaRecipe] = c.Recipe
	}
	return metadata
}
