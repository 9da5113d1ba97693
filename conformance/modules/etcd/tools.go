//go:build tools

// Package programs names what is built from this module.
package programs

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "go.etcd.io/etcd/v3/tools/benchmark"
)
