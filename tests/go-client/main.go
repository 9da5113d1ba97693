// A client of client-go, as operators and components of a cluster are: protobuf for built-in types, informers that
// start with a streaming list, leader election, discovery. It takes a kubeconfig, says "ok" for each thing that it did
// and checked, and fails at the first that is not as it should be.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "default"
	protobuf  = "application/vnd.kubernetes.protobuf"
	// How long something that should happen may take on a busy machine.
	patience = 60 * time.Second
)

type check struct {
	name string
	run  func(context.Context, *rest.Config) error
}

var checks = []check{
	{"crud", crud},
	{"errors", refusals},
	{"patches", patches},
	{"apply", apply},
	{"scale", scale},
	{"retry", retryOnConflict},
	{"paging", paging},
	{"watch", typedWatch},
	{"informer", sharedInformer},
	{"dynamic", dynamicInformer},
	{"metadata", metadataInformer},
	{"election", election},
	{"events", events},
	{"discovery", aggregatedDiscovery},
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		fail("kubeconfig", err)
	}
	config.QPS = -1
	for _, check := range checks {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := check.run(ctx, rest.CopyConfig(config)); err != nil {
			fail(check.name, err)
		}
		cancel()
		fmt.Println("ok", check.name)
	}
}

func fail(name string, err error) {
	fmt.Println("failed", name+":", err)
	os.Exit(1)
}

// until asks again and again until there is no complaint.
func until(ctx context.Context, ask func() error) error {
	for {
		complaint := ask()
		if complaint == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return complaint
		case <-time.After(20 * time.Millisecond):
		}
	}
}
