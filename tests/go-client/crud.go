package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
)

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"by": "go"}}, Data: data}
}

func crud(ctx context.Context, config *rest.Config) error {
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	api := client.CoreV1().ConfigMaps(namespace)
	created, err := api.Create(ctx, configMap("crud", map[string]string{"a": "1"}), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.BinaryData = map[string][]byte{"b": {0, 255, 7}}
	updated, err := api.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	read, err := api.Get(ctx, "crud", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !maps.Equal(read.Data, updated.Data) || string(read.BinaryData["b"]) != "\x00\xff\x07" || read.UID != created.UID {
		return fmt.Errorf("read %v, wrote %v", read, updated)
	}
	list, err := api.List(ctx, metav1.ListOptions{LabelSelector: "by=go", FieldSelector: "metadata.name=crud"})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].ResourceVersion != updated.ResourceVersion {
		return fmt.Errorf("listed %v", list)
	}
	uid, background := read.UID, metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background}
	if err := api.Delete(ctx, "crud", options); err != nil {
		return err
	}
	if _, err := api.Get(ctx, "crud", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("after its deletion: %v", err)
	}
	return seen.all(inProtobuf)
}

// refusals are told apart by their reasons, in protobuf too.
func refusals(ctx context.Context, config *rest.Config) error {
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	api := client.CoreV1().ConfigMaps(namespace)
	made, err := api.Create(ctx, configMap("twice", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := api.Create(ctx, configMap("twice", nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("created twice: %v", err)
	}
	if _, err := api.Create(ctx, configMap("Not A Name", nil), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("created with a bad name: %v", err)
	} else if causes := err.(*apierrors.StatusError).ErrStatus.Details.Causes; len(causes) != 1 || causes[0].Field != "metadata.name" {
		return fmt.Errorf("causes: %v", causes)
	}
	made.ResourceVersion = "1"
	if _, err := api.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("updated what is old: %v", err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, err := api.Create(ctx, configMap("dry", nil), dry); err != nil {
		return err
	}
	if _, err := api.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("a dry run left something: %v", err)
	}
	return seen.all(inProtobuf)
}

// retryOnConflict adds up from several clients at once.
func retryOnConflict(ctx context.Context, config *rest.Config) error {
	client, _, err := typed(config)
	if err != nil {
		return err
	}
	const clients = 8
	api := client.CoreV1().ConfigMaps(namespace)
	if _, err := api.Create(ctx, configMap("sum", map[string]string{"n": "0"}), metav1.CreateOptions{}); err != nil {
		return err
	}
	backoff := retry.DefaultRetry
	backoff.Steps = 1000
	var group sync.WaitGroup
	failures := make(chan error, clients)
	for range clients {
		group.Go(func() {
			failures <- retry.RetryOnConflict(backoff, func() error {
				current, err := api.Get(ctx, "sum", metav1.GetOptions{})
				if err != nil {
					return err
				}
				n, err := strconv.Atoi(current.Data["n"])
				if err != nil {
					return err
				}
				current.Data["n"] = strconv.Itoa(n + 1)
				_, err = api.Update(ctx, current, metav1.UpdateOptions{})
				return err
			})
		})
	}
	group.Wait()
	for range clients {
		if err := <-failures; err != nil {
			return err
		}
	}
	if sum, err := api.Get(ctx, "sum", metav1.GetOptions{}); err != nil || sum.Data["n"] != strconv.Itoa(clients) {
		return fmt.Errorf("%v, %v", sum, err)
	}
	return nil
}

// paging lists in pages that belong together, and deletes the whole collection.
func paging(ctx context.Context, config *rest.Config) error {
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	const count, page = 25, 7
	api := client.CoreV1().ConfigMaps(namespace)
	for i := range count {
		object := configMap(fmt.Sprintf("page-%02d", i), nil)
		object.Labels = map[string]string{"paged": "yes"}
		if _, err := api.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	selected := metav1.ListOptions{LabelSelector: "paged=yes"}
	pages := 0
	lister := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		pages++
		return api.List(ctx, options)
	})
	lister.PageSize = page
	var names []string
	err = lister.EachListItem(ctx, selected, func(object runtime.Object) error {
		names = append(names, object.(*corev1.ConfigMap).Name)
		return nil
	})
	if err != nil {
		return err
	}
	if len(names) != count || names[0] != "page-00" || names[count-1] != "page-24" || pages != 4 {
		return fmt.Errorf("%d pages with %v", pages, names)
	}
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		return err
	}
	if left, err := api.List(ctx, selected); err != nil || len(left.Items) != 0 {
		return fmt.Errorf("left %v, %v", left, err)
	}
	return seen.all(inProtobuf)
}
