package job

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Protocol is the number of what coordinators and workers of one job must agree on: the
// forms of messages, specifications, shards and partials, and the arithmetic. Two builds
// with the same protocol interoperate, and with the same kernel they compute the same
// bytes. Tasks go only to workers with the protocol of their coordinator. CONTRIBUTING.md
// says when to raise it. Builds without the constant count as protocol 0. No release has 9.
const Protocol = 9

// ProtocolOf returns the protocol of the build that wrote a message. ok is false if the
// body is not a message of any build. All builds write a JSON object with a job, and since
// protocol 1 with a property protocol. This must never change.
func ProtocolOf(body []byte) (protocol int, ok bool) {
	var head struct {
		Protocol int    `json:"protocol"`
		Job      string `json:"job"`
	}
	if json.Unmarshal(body, &head) != nil || head.Job == "" || head.Protocol < 0 {
		return 0, false
	}
	return head.Protocol, true
}

// Build describes a program to people and to coordinators that look for workers.
type Build struct {
	Name     string `json:"name"`     // of the worker
	Kernel   string `json:"kernel"`   // float32 kernel that it computes with
	Protocol int    `json:"protocol"` // see Protocol
	Program  string `json:"program"`  // version and commit
	// Kernels are all kernels of a worker that computes with several, separated by commas;
	// "" = only Kernel, which is always the first of them.
	Kernels string `json:"kernels,omitempty"`
	// Leaving says that the worker was asked to leave: it finishes its task and ends.
	Leaving bool `json:"leaving,omitempty"`
}

// AllKernels returns the kernels, separated by commas.
func (b *Build) AllKernels() string { return cmp.Or(b.Kernels, b.Kernel) }

// Computes reports whether the worker takes tasks of the kernel.
func (b *Build) Computes(kernel string) bool {
	return slices.Contains(strings.Split(b.AllKernels(), ","), kernel)
}
