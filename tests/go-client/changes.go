package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
)

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

// patches of all three kinds; the strategic one merges containers by name. Annotations count as changes of a Deployment.
func patches(ctx context.Context, config *rest.Config) error {
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	api := client.AppsV1().Deployments(namespace)
	if _, err := api.Create(ctx, deployment("patched"), metav1.CreateOptions{}); err != nil {
		return err
	}
	steps := []struct {
		kind types.PatchType
		body string
		done func(*appsv1.Deployment) bool
	}{
		{types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":4}]`,
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 4 }},
		{types.MergePatchType, `{"metadata":{"annotations":{"k":"v"}}}`,
			func(d *appsv1.Deployment) bool { return d.Annotations["k"] == "v" }},
		{types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"j"}]}}}}`,
			func(d *appsv1.Deployment) bool { return len(d.Spec.Template.Spec.Containers) == 2 && d.Generation == 4 }},
	}
	for _, step := range steps {
		patched, err := api.Patch(ctx, "patched", step.kind, []byte(step.body), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("%s: %w", step.kind, err)
		}
		if !step.done(patched) {
			return fmt.Errorf("%s: %v", step.kind, patched)
		}
	}
	if err := api.Delete(ctx, "patched", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return seen.all(inProtobuf)
}

// apply makes an object, refuses what another manager owns, and takes it when it is forced.
func apply(ctx context.Context, config *rest.Config) error {
	client, _, err := typed(config)
	if err != nil {
		return err
	}
	api := client.CoreV1().ConfigMaps(namespace)
	ours := applycore.ConfigMap("applied", namespace).WithData(map[string]string{"a": "1", "b": "1"})
	if _, err := api.Apply(ctx, ours, metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		return err
	}
	theirs := applycore.ConfigMap("applied", namespace).WithData(map[string]string{"a": "2"})
	if _, err := api.Apply(ctx, theirs, metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		return fmt.Errorf("applied over another's field: %v", err)
	}
	forced, err := api.Apply(ctx, theirs, metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		return err
	}
	if forced.Data["a"] != "2" || forced.Data["b"] != "1" || len(forced.ManagedFields) != 2 {
		return fmt.Errorf("%v", forced)
	}
	extracted, err := applycore.ExtractConfigMap(forced, "two")
	if err != nil {
		return err
	}
	if len(extracted.Data) != 1 || extracted.Data["a"] != "2" {
		return fmt.Errorf("extracted %v", extracted)
	}
	return api.Delete(ctx, "applied", metav1.DeleteOptions{})
}

// scale goes through a subresource of another kind.
func scale(ctx context.Context, config *rest.Config) error {
	client, seen, err := typed(config)
	if err != nil {
		return err
	}
	api := client.AppsV1().Deployments(namespace)
	if _, err := api.Create(ctx, deployment("scaled"), metav1.CreateOptions{}); err != nil {
		return err
	}
	current, err := api.GetScale(ctx, "scaled", metav1.GetOptions{})
	if err != nil {
		return err
	}
	current.Spec.Replicas = 5
	if _, err := api.UpdateScale(ctx, "scaled", current, metav1.UpdateOptions{}); err != nil {
		return err
	}
	read, err := api.Get(ctx, "scaled", metav1.GetOptions{})
	if err != nil || *read.Spec.Replicas != 5 || current.Status.Selector != "app=scaled" {
		return fmt.Errorf("%v, %v, %v", read, current, err)
	}
	if err := api.Delete(ctx, "scaled", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return seen.all(inProtobuf)
}
