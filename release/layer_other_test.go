//go:build !linux

package main

import "testing"

// runLayer does nothing, because layers are for Linux.
func runLayer(*testing.T, map[string]entry, []string) {}
