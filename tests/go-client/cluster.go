package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

// election has two candidates; the second leads once the first has let go.
func election(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leading := make(chan string, 2)
	candidate := func(ctx context.Context, name string) {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "throne"},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			ReleaseOnCancel: true,
			LeaseDuration:   15 * time.Second,
			RenewDeadline:   10 * time.Second,
			RetryPeriod:     200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { leading <- name; <-ctx.Done() },
				OnStoppedLeading: func() {},
			},
		})
	}
	first, abdicate := context.WithCancel(ctx)
	go candidate(first, "first")
	if leader := <-leading; leader != "first" {
		abdicate()
		return fmt.Errorf("%s leads", leader)
	}
	go candidate(ctx, "second")
	abdicate()
	select {
	case leader := <-leading:
		if leader != "second" {
			return fmt.Errorf("%s leads", leader)
		}
	case <-ctx.Done():
		return fmt.Errorf("nobody leads")
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, "throne", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions != 1 {
		return fmt.Errorf("%v, %v", lease, err)
	}
	return nil
}

// events of the same kind are counted and not repeated.
func events(ctx context.Context, config *rest.Config) error {
	client, _, err := typed(config)
	if err != nil {
		return err
	}
	object, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("eventful", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events(namespace)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "go-client"})
	for range 3 {
		recorder.Event(object, corev1.EventTypeNormal, "Ringing", "the bell rings")
	}
	return until(ctx, func() error {
		selector := "reason=Ringing,involvedObject.name=eventful"
		list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Count != 3 {
			return fmt.Errorf("%v", list.Items)
		}
		return nil
	})
}

// aggregatedDiscovery learns every resource in two requests.
func aggregatedDiscovery(_ context.Context, config *rest.Config) error {
	seen := watchTraffic(config)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	if err := seen.all(func(each exchange) bool { return strings.Contains(each.contentType, "APIGroupDiscoveryList") }); err != nil {
		return err
	}
	if len(seen.exchanges) != 2 {
		return fmt.Errorf("%d requests", len(seen.exchanges))
	}
	verbs := map[string]int{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			verbs[list.GroupVersion+"/"+resource.Name] = len(resource.Verbs)
		}
	}
	for name, count := range map[string]int{"v1/pods": 8, "apps/v1/deployments/scale": 3, "v1/pods/binding": 1, "coordination.k8s.io/v1/leases": 8} {
		if verbs[name] != count {
			return fmt.Errorf("%s has %d verbs, not %d", name, verbs[name], count)
		}
	}
	version, err := client.ServerVersion()
	if err != nil || version.Major != "1" || version.Minor != "36" || len(groups) < 15 {
		return fmt.Errorf("%v, %d groups, %v", version, len(groups), err)
	}
	return nil
}
