package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// streamedList tells whether an informer began with a streaming list, and not with a list.
func streamedList(seen *traffic) error {
	return seen.some("streaming list", func(each exchange) bool {
		return strings.Contains(each.url, "sendInitialEvents=true") && each.status == 200
	})
}

func notListed(each exchange) bool { return strings.Contains(each.url, "watch=true") }

// typedWatch follows one object through a watch that is resumed where it ended.
func typedWatch(ctx context.Context, config *rest.Config) error {
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	api := client.CoreV1().ConfigMaps(namespace)
	made, err := api.Create(ctx, configMap("watched", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	second := int64(1)
	lister := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector, options.TimeoutSeconds = "metadata.name=watched", &second
		return api.Watch(ctx, options)
	}}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, made.ResourceVersion, lister)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	// Each change is made after a watch has ended, so that the next one is resumed.
	for _, value := range []string{"1", "2", "3"} {
		time.Sleep(1100 * time.Millisecond)
		made.Data = map[string]string{"n": value}
		if made, err = api.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return err
		}
		event := <-watcher.ResultChan()
		object, is := event.Object.(*corev1.ConfigMap)
		if !is || event.Type != watch.Modified || object.Data["n"] != value || object.ResourceVersion != made.ResourceVersion {
			return fmt.Errorf("%s %v instead of %v", event.Type, event.Object, made)
		}
	}
	if err := api.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if event := <-watcher.ResultChan(); event.Type != watch.Deleted {
		return fmt.Errorf("%s instead of a deletion", event.Type)
	}
	return seen.all(inProtobuf)
}

// churn makes 30 objects, changes ten of them and deletes ten others.
func churn(ctx context.Context, client kubernetes.Interface, name string) error {
	api := client.CoreV1().ConfigMaps(namespace)
	for i := range 30 {
		object := configMap(fmt.Sprintf("%s-%02d", name, i), nil)
		object.Labels = map[string]string{"informer": name}
		if _, err := api.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range 10 {
		changed, deleted := fmt.Sprintf("%s-%02d", name, i), fmt.Sprintf("%s-%02d", name, i+10)
		if _, err := api.Patch(ctx, changed, types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := api.Delete(ctx, deleted, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// settled asks until what an informer holds is exactly what a list gives.
func settled(ctx context.Context, client kubernetes.Interface, name string, store cache.Store) error {
	return until(ctx, func() error {
		list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: "informer=" + name})
		if err != nil {
			return err
		}
		wanted := map[string]string{}
		for _, object := range list.Items {
			wanted[object.Name] = object.ResourceVersion
		}
		if len(wanted) != 20 {
			return fmt.Errorf("%d objects are there", len(wanted))
		}
		held := store.List()
		if len(held) != len(wanted) {
			return fmt.Errorf("the informer holds %d of %d", len(held), len(wanted))
		}
		for _, object := range held {
			accessor, err := meta.Accessor(object)
			if err != nil {
				return err
			}
			if wanted[accessor.GetName()] != accessor.GetResourceVersion() {
				return fmt.Errorf("%s is held at %s", accessor.GetName(), accessor.GetResourceVersion())
			}
		}
		return nil
	})
}

func selecting(name string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		options.LabelSelector = labels.Set{"informer": name}.String()
	}
}

// follow runs an informer while objects come, change and go; half of the time it has been there before them.
func follow(ctx context.Context, plain *rest.Config, name string, informer cache.SharedIndexInformer) error {
	client, err := kubernetes.NewForConfig(plain)
	if err != nil {
		return err
	}
	early := configMap(name+"-99", nil)
	early.Labels = map[string]string{"informer": name}
	api := client.CoreV1().ConfigMaps(namespace)
	if _, err := api.Create(ctx, early, metav1.CreateOptions{}); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go informer.RunWithContext(running)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("it does not become ready")
	}
	if held := informer.GetStore().ListKeys(); len(held) != 1 || held[0] != namespace+"/"+early.Name {
		return fmt.Errorf("when ready it holds %v", held)
	}
	if err := churn(ctx, client, name); err != nil {
		return err
	}
	if err := api.Delete(ctx, early.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return settled(ctx, client, name, informer.GetStore())
}

func sharedInformer(ctx context.Context, config *rest.Config) error {
	plain := rest.CopyConfig(config)
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(namespace), informers.WithTweakListOptions(selecting("shared")))
	if err := follow(ctx, plain, "shared", factory.Core().V1().ConfigMaps().Informer()); err != nil {
		return err
	}
	if err := streamedList(seen); err != nil {
		return err
	}
	if err := seen.all(notListed); err != nil {
		return err
	}
	return seen.all(inProtobuf)
}

func dynamicInformer(ctx context.Context, config *rest.Config) error {
	plain := rest.CopyConfig(config)
	seen := watchTraffic(config)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, selecting("dynamic"))
	if err := follow(ctx, plain, "dynamic", factory.ForResource(configMaps).Informer()); err != nil {
		return err
	}
	return streamedList(seen)
}

func metadataInformer(ctx context.Context, config *rest.Config) error {
	plain := rest.CopyConfig(config)
	seen := watchTraffic(config)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, namespace, selecting("metadata"))
	if err := follow(ctx, plain, "metadata", factory.ForResource(configMaps).Informer()); err != nil {
		return err
	}
	return streamedList(seen)
}
