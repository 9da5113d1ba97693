//go:build tools

// Package programs names what is built from this module.
package programs

import (
	_ "k8s.io/sample-controller"
)
