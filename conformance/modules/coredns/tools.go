//go:build tools

// Package programs names what is built from this module.
package programs

import (
	_ "github.com/coredns/coredns"
)
