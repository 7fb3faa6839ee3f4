package family

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// plain matches the classes of torch that compute what the roles of tensors assume, or nothing in a trained model.
var plain = regexp.MustCompile(`^torch\.(nn\.modules\.(linear\.(Linear|Identity)|sparse\.Embedding|batchnorm\.BatchNorm1d|activation\.ReLU|(dropout|container|loss)\.\w+|module\.Module)|nn\.parallel\.(\w+\.)?\w*DataParallel|optim\.swa_utils\.AveragedModel|_dynamo\.eval_frame\.OptimizedModule)$`)

// short returns the name of a class without its Python module.
func short(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }

// checkModules returns an error for the first module of a pickled module that is known to compute something else than the
// roles assume: a class of torch, an attribute, or what stands between two linear layers.
func (s *Statement) checkModules(l *Roles) error {
	if s.Classes == nil {
		return nil
	}
	for _, path := range slices.Sorted(maps.Keys(s.Classes)) {
		class := s.Classes[path]
		if differs := s.Differs[path]; differs != "" {
			return fmt.Errorf("module %q, of class %s, has %s", path, class, differs)
		}
		parent := path[:strings.LastIndexByte(path, '.')+1]
		ofOutput := short(class) == "Sigmoid" && strings.HasPrefix(l.Embedding, parent) // a part of the model that reads the table
		if strings.HasPrefix(class, "torch.") && !plain.MatchString(class) && !ofOutput {
			return fmt.Errorf("module %q is of class %s, expected Linear, Embedding, BatchNorm1d, ReLU and Dropout", path, class)
		}
	}
	for _, layer := range l.Layers {
		if err := s.checkNext(layer.Weight, true); err != nil {
			return err
		}
	}
	return s.checkNext(l.Output.Weight, false)
}

// checkNext checks the modules from the linear layer with the given weight to the next one: BatchNorm and ReLU if the layer
// is hidden, and none that computes anything otherwise. A ModuleList may have its activations elsewhere.
func (s *Statement) checkNext(weight string, hidden bool) error {
	path := strings.TrimSuffix(weight, ".weight")
	dot := strings.LastIndexByte(path, '.') + 1
	i, err := strconv.Atoi(path[dot:])
	if err != nil {
		return nil
	}
	relus := 0
	for class := s.Classes[path]; ; {
		switch name := short(class); {
		case !plain.MatchString(class), name == "ReLU" && !hidden, name == "BatchNorm1d" && (!hidden || relus > 0):
			return fmt.Errorf("module %q is of class %s, expected %s", path, class, map[bool]string{true: "Linear, BatchNorm1d, ReLU or Dropout", false: "nothing after the last linear layer"}[hidden])
		case name == "ReLU":
			relus++
		}
		i++
		path = path[:dot] + strconv.Itoa(i)
		if class = s.Classes[path]; class == "" || short(class) == "Linear" {
			break
		}
	}
	if list := s.Classes[strings.TrimSuffix(path[:dot], ".")]; hidden && relus == 0 && short(list) != "ModuleList" {
		return fmt.Errorf("no ReLU follows the linear layer with the tensor %s", weight)
	}
	return nil
}
