package main

import (
	"context"
	"fmt"
	"math/rand"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

const driver = "gpu.example.com"

// The victims of a preemption on a node, or why there are none.
type preemption struct {
	Victims    []string `json:"victims,omitempty"`
	Violations int      `json:"violations,omitempty"`
	Message    string   `json:"message,omitempty"`
}

type objectCase struct {
	*testCase
	// By the plural names of their resources.
	Objects    map[string][]runtime.Object `json:"objects"`
	Preemption map[string]preemption       `json:"preemption,omitempty"`
}

func (c *objectCase) add(plural string, object runtime.Object) {
	c.Objects[plural] = append(c.Objects[plural], object)
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}
}

func (g generator) zoneTerm() *v1.NodeSelector {
	requirement := v1.NodeSelectorRequirement{Key: "topology.kubernetes.io/zone", Operator: v1.NodeSelectorOpIn, Values: []string{g.pick("z1", "z2", "z3")}}
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{requirement}}}}
}

// Adds storage classes, CSINodes and free volumes.
func (g generator) storage(c *objectCase) {
	immediate, late := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	c.add("storageclasses", &storagev1.StorageClass{ObjectMeta: meta("", "now"), Provisioner: "csi.example.com", VolumeBindingMode: &immediate})
	c.add("storageclasses", &storagev1.StorageClass{ObjectMeta: meta("", "late"), Provisioner: "csi.example.com", VolumeBindingMode: &late})
	c.add("storageclasses", &storagev1.StorageClass{ObjectMeta: meta("", "manual"), Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late})
	topology := v1.TopologySelectorTerm{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "topology.kubernetes.io/zone", Values: []string{"z1", "z2"}}}}
	c.add("storageclasses", &storagev1.StorageClass{ObjectMeta: meta("", "zoned"), Provisioner: "capacity.example.com", VolumeBindingMode: &late, AllowedTopologies: []v1.TopologySelectorTerm{topology}})
	yes := true
	c.add("csidrivers", &storagev1.CSIDriver{ObjectMeta: meta("", "capacity.example.com"), Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes}})
	for i := range g.Intn(3) {
		size := resource.MustParse(g.pick("1Gi", "4Gi", "20Gi"))
		c.add("csistoragecapacities", &storagev1.CSIStorageCapacity{ObjectMeta: meta("ns1", fmt.Sprintf("capacity-%d", i)), StorageClassName: "zoned", Capacity: &size,
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"topology.kubernetes.io/zone": g.pick("z1", "z2", "z3")}}})
	}
	for _, node := range c.Nodes {
		if g.chance(70) {
			limit := int32(g.Intn(3) + 1)
			c.add("csinodes", &storagev1.CSINode{ObjectMeta: meta("", node.Name), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: node.Name, Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}}})
		}
	}
	for i := range g.Intn(4) {
		c.add("persistentvolumes", g.volume(fmt.Sprintf("free-%d", i), "manual", v1.VolumeAvailable))
	}
}

func (g generator) volume(name, class string, phase v1.PersistentVolumePhase) *v1.PersistentVolume {
	volume := &v1.PersistentVolume{ObjectMeta: meta("", name)}
	volume.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(g.pick("1Gi", "2Gi", "5Gi"))}
	volume.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	volume.Spec.StorageClassName = class
	volume.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: name}
	volume.Status.Phase = phase
	if g.chance(40) {
		volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: g.zoneTerm()}
	}
	if g.chance(30) {
		volume.Labels = map[string]string{"topology.kubernetes.io/zone": g.pick("z1", "z2", "z1__z2")}
	}
	return volume
}

// Gives a pod a volume.
func (g generator) attach(c *objectCase, pod *v1.Pod, bound bool) {
	name := fmt.Sprintf("%s-%d", pod.Name, len(pod.Spec.Volumes))
	claim := &v1.PersistentVolumeClaim{ObjectMeta: meta(pod.Namespace, name)}
	class := g.pick("now", "late", "manual", "zoned")
	claim.Spec = v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &class,
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(g.pick("1Gi", "3Gi"))}}}
	if bound || g.chance(60) {
		claim.Spec.VolumeName = "bound-" + name
		claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		claim.Status.Phase = v1.ClaimBound
		if g.chance(20) {
			claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		}
		if bound || g.chance(90) {
			volume := g.volume(claim.Spec.VolumeName, class, v1.VolumeBound)
			volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: pod.Namespace, Name: name, UID: claim.UID}
			c.add("persistentvolumes", volume)
		}
	} else if class == "late" && g.chance(30) {
		claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": c.Nodes[0].Name}
	} else if g.chance(10) {
		claim.Status.Phase = v1.ClaimLost
	}
	if bound || g.chance(95) {
		c.add("persistentvolumeclaims", claim)
	}
	source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
}

func (g generator) attributes() map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	model, numa := g.pick("a", "b"), int64(g.Intn(2))
	attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}}
	if g.chance(80) {
		attributes["numa"] = resourceapi.DeviceAttribute{IntValue: &numa}
	}
	return attributes
}

// Adds device classes and the devices of nodes.
func (g generator) devices(c *objectCase) {
	selector := func(expression string) []resourceapi.DeviceSelector {
		return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	extended := "example.com/device"
	c.add("deviceclasses", &resourceapi.DeviceClass{ObjectMeta: meta("", "any"), Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: &extended}})
	c.add("deviceclasses", &resourceapi.DeviceClass{ObjectMeta: meta("", "model-a"), Spec: resourceapi.DeviceClassSpec{Selectors: selector(`device.attributes["gpu.example.com"].model == "a"`)}})
	for _, node := range c.Nodes {
		if g.chance(25) {
			continue
		}
		pool := resourceapi.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: 1}
		hasCounters := g.chance(25)
		if hasCounters {
			pool.ResourceSliceCount = 2
			counters := map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("8Gi")}}
			c.add("resourceslices", &resourceapi.ResourceSlice{ObjectMeta: meta("", "counters-"+node.Name), Spec: resourceapi.ResourceSliceSpec{Driver: driver, Pool: pool, NodeName: &node.Name, SharedCounters: []resourceapi.CounterSet{{Name: "set", Counters: counters}}}})
		}
		if g.chance(8) {
			pool.ResourceSliceCount++
		}
		slice := &resourceapi.ResourceSlice{ObjectMeta: meta("", "devices-"+node.Name), Spec: resourceapi.ResourceSliceSpec{Driver: driver, Pool: pool, NodeName: &node.Name}}
		for i := range g.Intn(4) + 1 {
			device := resourceapi.Device{Name: fmt.Sprintf("device-%d", i), Attributes: g.attributes()}
			if g.chance(60) {
				device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("8Gi")}}
			}
			if g.chance(30) {
				shared := true
				device.AllowMultipleAllocations = &shared
			}
			if g.chance(20) {
				device.Taints = []resourceapi.DeviceTaint{{Key: "k", Value: "v", Effect: resourceapi.DeviceTaintEffect(g.pick("NoSchedule", "NoExecute"))}}
			}
			if hasCounters {
				uses := map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(g.pick("2Gi", "4Gi", "8Gi"))}}
				device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "set", Counters: uses}}
			}
			slice.Spec.Devices = append(slice.Spec.Devices, device)
		}
		c.add("resourceslices", slice)
	}
	// Devices that are in use.
	for i, object := range c.Objects["resourceslices"] {
		slice := object.(*resourceapi.ResourceSlice)
		if len(slice.Spec.Devices) == 0 || !g.chance(40) {
			continue
		}
		claim := &resourceapi.ResourceClaim{ObjectMeta: meta("ns2", fmt.Sprintf("used-%d", i)), Spec: g.claimSpec()}
		device := slice.Spec.Devices[g.Intn(len(slice.Spec.Devices))]
		result := resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: slice.Spec.Pool.Name, Device: device.Name}
		if device.AllowMultipleAllocations != nil {
			share := types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
			result.ShareID = &share
			if len(device.Capacity) > 0 {
				result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(g.pick("2Gi", "6Gi"))}
			}
		}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}}
		c.add("resourceclaims", claim)
	}
}

func (g generator) claimSpec() resourceapi.ResourceClaimSpec {
	exact := &resourceapi.ExactDeviceRequest{DeviceClassName: g.pick("any", "any", "model-a"), AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(g.Intn(2) + 1)}
	if g.chance(15) {
		exact.AllocationMode, exact.Count = resourceapi.DeviceAllocationModeAll, 0
	}
	if g.chance(20) {
		exact.Tolerations = []resourceapi.DeviceToleration{{Key: "k", Operator: resourceapi.DeviceTolerationOpExists}}
	}
	if g.chance(25) {
		exact.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(g.pick("1Gi", "4Gi"))}}
	}
	request := resourceapi.DeviceRequest{Name: "r", Exactly: exact}
	if g.chance(30) {
		request = resourceapi.DeviceRequest{Name: "r"}
		for i := range 2 {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{Name: fmt.Sprintf("s%d", i), DeviceClassName: g.pick("any", "model-a"), AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(3 - i)})
		}
	}
	spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}}
	if g.chance(25) {
		attribute := resourceapi.FullyQualifiedName(driver + "/numa")
		spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
	}
	return spec
}

// Gives a pod a claim for devices.
func (g generator) claim(c *objectCase, pod *v1.Pod) {
	name := fmt.Sprintf("%s-%d", pod.Name, len(pod.Spec.ResourceClaims))
	c.add("resourceclaims", &resourceapi.ResourceClaim{ObjectMeta: meta(pod.Namespace, name), Spec: g.claimSpec()})
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
}

func (g generator) budgets(c *objectCase) {
	for i := range g.Intn(3) {
		one := intstr.FromInt32(1)
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta(g.pick("ns1", "ns2"), fmt.Sprintf("budget-%d", i)), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: g.selector()}}
		budget.Status.DisruptionsAllowed = int32(g.Intn(2))
		c.add("poddisruptionbudgets", budget)
	}
}

func evaluateObjects(seed int64) (*objectCase, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := generator{rand.New(rand.NewSource(seed))}
	c := &objectCase{testCase: &testCase{Seed: seed, Reasons: map[string]string{}, Scores: map[string][]int64{}, Feasible: []string{}}, Objects: map[string][]runtime.Object{}, Preemption: map[string]preemption{}}
	for i := range g.Intn(6) + 2 {
		node := g.node(i)
		node.Spec.Taints, node.Spec.Unschedulable = nil, false
		c.Nodes = append(c.Nodes, node)
	}
	g.storage(c)
	g.devices(c)
	g.budgets(c)
	prepare := func(name string) *v1.Pod {
		pod := g.pod(name)
		if g.chance(60) {
			pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints, pod.Spec.NodeSelector = nil, nil, nil
		}
		value := int32(g.Intn(4))
		pod.Spec.Priority = &value
		return pod
	}
	for i := range g.Intn(12) {
		pod := prepare(fmt.Sprintf("pod-%d", i))
		pod.Spec.NodeName = c.Nodes[g.Intn(len(c.Nodes))].Name
		start := metav1.Unix(1700000000+int64(g.Intn(100)), 0)
		pod.Status.StartTime = &start
		if g.chance(40) {
			g.attach(c, pod, true)
		}
		c.Pods = append(c.Pods, pod)
	}
	c.Pod = prepare("incoming")
	if priority := int32(3); g.chance(50) {
		c.Pod.Spec.Priority = &priority
	}
	if g.chance(60) {
		g.attach(c, c.Pod, false)
	}
	if len(c.Pods) > 0 && len(c.Pod.Spec.Volumes) == 0 && g.chance(40) {
		other := c.Pods[g.Intn(len(c.Pods))]
		c.Pod.Namespace, c.Pod.Spec.Volumes = other.Namespace, other.Spec.Volumes
	}
	if g.chance(50) {
		g.claim(c, c.Pod)
	}
	if g.chance(20) {
		c.Pod.Spec.Containers[0].Resources.Requests["example.com/device"] = resource.MustParse("1")
	}
	return c, c.evaluate(ctx)
}

// Evaluates the case with all default plug-ins.
func (c *objectCase) evaluate(ctx context.Context) error {
	objects := []runtime.Object{c.Pod.DeepCopy()}
	for _, list := range c.Objects {
		for _, object := range list {
			objects = append(objects, object.DeepCopyObject())
		}
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := assumecache.NewAssumeCache(klog.Background(), factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	slices, err := tracker.StartTracker(ctx, tracker.Options{EnableConsumableCapacity: true, SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client})
	if err != nil {
		return err
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	if handler, ok := manager.DeviceClassResolver().(interface {
		OnAdd(object any, isInInitialList bool)
		OnUpdate(old, new any)
		OnDelete(object any)
	}); ok {
		if _, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(handler); err != nil {
			return err
		}
	}
	configuration, err := latest.Default()
	if err != nil {
		return err
	}
	snapshot := cache.NewSnapshot(c.Pods, c.Nodes)
	waiting := queue.NewSchedulingQueue(nil, factory)
	scheduling, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &configuration.Profiles[0],
		frameworkruntime.WithSnapshotSharedLister(snapshot), frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(manager), frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithPodNominator(waiting), frameworkruntime.WithEventRecorder(&events.FakeRecorder{}))
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	// Handlers run after the informers have synced.
	isComplete := func() bool {
		known, err := manager.ResourceClaims().List()
		published, slicesErr := manager.ResourceSlices().ListWithDeviceTaintRules()
		return err == nil && slicesErr == nil && len(known) == len(c.Objects["resourceclaims"]) &&
			len(published) == len(c.Objects["resourceslices"]) && manager.DeviceClassResolver().GetDeviceClass("example.com/device") != nil
	}
	for !isComplete() {
		time.Sleep(time.Millisecond)
	}
	// The devices in use are counted by a further handler.
	time.Sleep(20 * time.Millisecond)
	state := framework.NewCycleState()
	_, status, _ := scheduling.RunPreFilterPlugins(ctx, state, c.Pod)
	if !status.IsSuccess() {
		c.PreFilter = status.Message()
		return nil
	}
	var feasible []fwk.NodeInfo
	for _, node := range c.Nodes {
		info, err := snapshot.Get(node.Name)
		if err != nil {
			return err
		}
		status := scheduling.RunFilterPlugins(ctx, state, c.Pod, info)
		c.Reasons[node.Name] = status.Message()
		if status.IsSuccess() {
			feasible = append(feasible, info)
			c.Feasible = append(c.Feasible, node.Name)
		}
	}
	if err := c.preempt(ctx, scheduling, state, snapshot); err != nil {
		return err
	}
	if len(feasible) == 0 {
		return nil
	}
	if status := scheduling.RunPreScorePlugins(ctx, state, c.Pod, feasible); !status.IsSuccess() {
		return status.AsError()
	}
	scores, status := scheduling.RunScorePlugins(ctx, state, c.Pod, feasible)
	if !status.IsSuccess() {
		return status.AsError()
	}
	for _, node := range scores {
		for _, score := range node.Scores {
			c.Scores[score.Name] = append(c.Scores[score.Name], score.Score)
		}
	}
	return nil
}

// Selects the victims on every node where the pod does not fit.
func (c *objectCase) preempt(ctx context.Context, scheduling framework.Framework, state fwk.CycleState, snapshot *cache.Snapshot) error {
	fts := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(ctx, &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}, scheduling, fts)
	if err != nil {
		return err
	}
	var budgets []*policyv1.PodDisruptionBudget
	for _, object := range c.Objects["poddisruptionbudgets"] {
		budgets = append(budgets, object.(*policyv1.PodDisruptionBudget))
	}
	for _, node := range c.Nodes {
		if c.Reasons[node.Name] == "" {
			continue
		}
		info, err := snapshot.Get(node.Name)
		if err != nil {
			return err
		}
		victims, violations, status := plugin.SelectVictimsOnNode(ctx, state.Clone(), c.Pod, info.Snapshot(), budgets)
		result := preemption{Violations: violations, Message: status.Message()}
		for _, victim := range victims {
			result.Victims = append(result.Victims, victim.Name)
		}
		c.Preemption[node.Name] = result
	}
	return nil
}
