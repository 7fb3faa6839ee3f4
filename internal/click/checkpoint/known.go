package checkpoint

import (
	"encoding/json"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// metaVocabulary is the metadata key of a JSON array with a model.Identity for each field, in
// safetensors files and in .onnx files.
const metaVocabulary = "shaver.vocabulary"

// Known returns what the file says about the fields.
func (c *Checkpoint) Known() *model.Known {
	return &model.Known{File: c.name, Names: c.Fields, Fields: c.Identities, Sizes: c.Architecture.FieldDims, Ignored: c.Ignored}
}

// takeIdentities sets Identities from the metadata of a file, which may lack them. The
// architecture must be known.
func (c *Checkpoint) takeIdentities(metadata map[string]string) error {
	text, ok := metadata[metaVocabulary]
	if !ok {
		return nil
	}
	var list []model.Identity
	err := json.Unmarshal([]byte(text), &list)
	if err == nil {
		err = model.CheckIdentities(list, c.Architecture.Fields())
	}
	if err != nil {
		return fault.Inputf("%s: metadata %s: %w", c.name, metaVocabulary, typeError(err))
	}
	c.Identities = list
	return nil
}

// takeProperties sets Identities, Origins and Scored from the metadata of an .onnx file.
func (c *Checkpoint) takeProperties(metadata map[string]string) error {
	if err := c.takeIdentities(metadata); err != nil {
		return err
	}
	return c.takeHistory(metadata)
}

// takeHistory sets Origins and Scored from the metadata of a file, which may lack them.
func (c *Checkpoint) takeHistory(metadata map[string]string) (err error) {
	if c.Origins, err = originsOf(metadata); err != nil {
		return c.inputf("%w", err)
	}
	if c.Scored, err = arrayIn[Scored](metadata, metaScored, "objects with dataset and splits"); err != nil {
		return c.inputf("%w", err)
	}
	return nil
}

// properties returns the metadata with Identities, Origins and Scored, which .onnx files have too.
func (c *Checkpoint) properties() map[string]string {
	metadata := map[string]string{}
	if c.Identities != nil {
		metadata[metaVocabulary] = string(mustMarshal(c.Identities))
	}
	if c.Origins != nil {
		metadata[metaOrigins] = string(mustMarshal(c.Origins))
	}
	if c.Scored != nil {
		metadata[metaScored] = string(mustMarshal(c.Scored))
	}
	return metadata
}
