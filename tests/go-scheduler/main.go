// Writes random clusters with what upstream's scheduler plug-ins make of them, one JSON document per line:
// nodes, existing pods, the incoming pod, why it fits on which node, and each plug-in's normalized scores.
//
//	go run . FIRST-SEED COUNT > cases.jsonl
//	go run . objects FIRST-SEED COUNT > objects.jsonl
//
// With "objects" the clusters have volumes, devices and disruption budgets, all default plug-ins take part, and the victims of
// preemption are written.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// Plug-ins that need a whole cluster around them.
var left = map[string]bool{"DynamicResources": true, "DefaultPreemption": true, "NodeVolumeLimits": true, "VolumeBinding": true, "VolumeZone": true, "VolumeRestrictions": true}

type testCase struct {
	Seed      int64              `json:"seed"`
	Nodes     []*v1.Node         `json:"nodes"`
	Pods      []*v1.Pod          `json:"pods"`
	Pod       *v1.Pod            `json:"pod"`
	PreFilter string             `json:"preFilter,omitempty"`
	Reasons   map[string]string  `json:"reasons"`
	Scores    map[string][]int64 `json:"scores,omitempty"`
	Feasible  []string           `json:"feasible"`
}

type generator struct{ *rand.Rand }

func (g generator) pick(options ...string) string { return options[g.Intn(len(options))] }
func (g generator) chance(percent int) bool       { return g.Intn(100) < percent }

func (g generator) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range []string{"app", "tier", "track"} {
		if g.chance(60) {
			labels[key] = g.pick("a", "b", "c")
		}
	}
	return labels
}

func (g generator) node(i int) *v1.Node {
	name := fmt.Sprintf("node-%d", i)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/hostname": name}}}
	if g.chance(80) {
		node.Labels["topology.kubernetes.io/zone"] = g.pick("z1", "z2", "z3")
	}
	if g.chance(50) {
		node.Labels["disk"] = g.pick("ssd", "hdd")
	}
	if g.chance(40) {
		node.Labels["rank"] = strconv.Itoa(g.Intn(9))
	}
	node.Spec.Unschedulable = g.chance(8)
	for _, effect := range []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute} {
		if g.chance(15) {
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: g.pick("k1", "k2"), Value: g.pick("", "v"), Effect: effect})
		}
	}
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(g.Intn(8)+1)*500, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(g.Intn(8)+1)<<29, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(g.Intn(12)+1), resource.DecimalSI),
	}
	if g.chance(30) {
		node.Status.Allocatable["example.com/gpu"] = *resource.NewQuantity(int64(g.Intn(3)), resource.DecimalSI)
	}
	for i := range 4 {
		if g.chance(40) {
			node.Status.Images = append(node.Status.Images, v1.ContainerImage{Names: []string{fmt.Sprintf("image-%d:latest", i)}, SizeBytes: int64(i+1) * 300 << 20})
		}
	}
	return node
}

func (g generator) selector() *metav1.LabelSelector {
	if g.chance(10) {
		return &metav1.LabelSelector{}
	}
	selector := &metav1.LabelSelector{}
	if g.chance(70) {
		selector.MatchLabels = map[string]string{g.pick("app", "tier"): g.pick("a", "b", "c")}
	} else {
		op := metav1.LabelSelectorOperator(g.pick("In", "NotIn", "Exists", "DoesNotExist"))
		expression := metav1.LabelSelectorRequirement{Key: g.pick("app", "tier", "track"), Operator: op}
		if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
			expression.Values = []string{g.pick("a", "b"), g.pick("b", "c")}
		}
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{expression}
	}
	return selector
}

func (g generator) topology() string {
	return g.pick("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/zone", "disk")
}

func (g generator) term() v1.PodAffinityTerm {
	term := v1.PodAffinityTerm{LabelSelector: g.selector(), TopologyKey: g.topology()}
	if g.chance(25) {
		term.Namespaces = []string{g.pick("ns1", "ns2")}
	}
	if g.chance(15) {
		term.NamespaceSelector = &metav1.LabelSelector{}
	}
	return term
}

func (g generator) affinity() *v1.Affinity {
	affinity := &v1.Affinity{}
	weighted := func() []v1.WeightedPodAffinityTerm {
		return []v1.WeightedPodAffinityTerm{{Weight: int32(g.Intn(100) + 1), PodAffinityTerm: g.term()}}
	}
	if g.chance(30) {
		affinity.PodAffinity = &v1.PodAffinity{}
		if g.chance(50) {
			affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{g.term()}
		}
		if g.chance(50) {
			affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = weighted()
		}
	}
	if g.chance(30) {
		affinity.PodAntiAffinity = &v1.PodAntiAffinity{}
		if g.chance(50) {
			affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{g.term()}
		}
		if g.chance(50) {
			affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = weighted()
		}
	}
	if g.chance(30) {
		affinity.NodeAffinity = &v1.NodeAffinity{}
		term := func() v1.NodeSelectorTerm {
			op := v1.NodeSelectorOperator(g.pick("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
			requirement := v1.NodeSelectorRequirement{Key: g.pick("disk", "topology.kubernetes.io/zone"), Operator: op}
			switch op {
			case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
				requirement.Values = []string{g.pick("ssd", "z1"), g.pick("hdd", "z2")}
			case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
				requirement.Key, requirement.Values = "rank", []string{strconv.Itoa(g.Intn(9))}
			}
			return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{requirement}}
		}
		if g.chance(50) {
			affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term(), term()}}
		}
		affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{{Weight: int32(g.Intn(100) + 1), Preference: term()}}
	}
	return affinity
}

func (g generator) pod(name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Namespace: g.pick("ns1", "ns1", "ns2"), Labels: g.labels()}}
	pod.Spec.SchedulerName = "default-scheduler"
	for i := range g.Intn(2) + 1 {
		container := v1.Container{Name: fmt.Sprintf("c%d", i), Image: fmt.Sprintf("image-%d", g.Intn(5))}
		requests := v1.ResourceList{}
		if g.chance(70) {
			requests[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(g.Intn(10))*100, resource.DecimalSI)
		}
		if g.chance(60) {
			requests[v1.ResourceMemory] = *resource.NewQuantity(int64(g.Intn(8))<<27, resource.BinarySI)
		}
		if g.chance(8) {
			requests["example.com/gpu"] = *resource.NewQuantity(1, resource.DecimalSI)
		}
		container.Resources.Requests = requests
		if g.chance(15) {
			container.Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: int32(8000 + g.Intn(3)), Protocol: v1.Protocol(g.pick("TCP", "UDP")), HostIP: g.pick("", "0.0.0.0", "127.0.0.1")}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	if g.chance(15) {
		always := v1.ContainerRestartPolicyAlways
		init := v1.Container{Name: "init", Image: "image-1", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("700m")}}}
		if g.chance(50) {
			init.RestartPolicy = &always
		}
		pod.Spec.InitContainers = []v1.Container{init}
	}
	if g.chance(10) {
		pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m")}
	}
	if g.chance(40) {
		pod.Spec.Tolerations = []v1.Toleration{{Key: g.pick("k1", "k2", "node.kubernetes.io/unschedulable"), Operator: v1.TolerationOperator(g.pick("Exists", "Equal", "")), Effect: v1.TaintEffect(g.pick("", "NoSchedule", "PreferNoSchedule"))}}
		if pod.Spec.Tolerations[0].Operator != v1.TolerationOpExists {
			pod.Spec.Tolerations[0].Value = g.pick("", "v")
		}
	}
	if g.chance(60) {
		pod.Spec.Affinity = g.affinity()
	}
	if g.chance(15) {
		pod.Spec.NodeSelector = map[string]string{"disk": g.pick("ssd", "hdd")}
	}
	for range g.Intn(3) {
		if g.chance(50) {
			honor, ignore := v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore
			constraint := v1.TopologySpreadConstraint{MaxSkew: int32(g.Intn(3) + 1), TopologyKey: g.topology(), LabelSelector: g.selector(), WhenUnsatisfiable: v1.UnsatisfiableConstraintAction(g.pick("DoNotSchedule", "ScheduleAnyway"))}
			if g.chance(30) {
				constraint.NodeTaintsPolicy, constraint.NodeAffinityPolicy = &honor, &ignore
			}
			if g.chance(30) {
				constraint.MatchLabelKeys = []string{"track"}
			}
			if constraint.WhenUnsatisfiable == v1.DoNotSchedule && g.chance(20) {
				domains := int32(g.Intn(4) + 1)
				constraint.MinDomains = &domains
			}
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, constraint)
		}
	}
	return pod
}

func evaluate(seed int64) (*testCase, error) {
	ctx := context.Background()
	g := generator{rand.New(rand.NewSource(seed))}
	c := &testCase{Seed: seed, Reasons: map[string]string{}, Scores: map[string][]int64{}, Feasible: []string{}}
	for i := range g.Intn(8) + 2 {
		c.Nodes = append(c.Nodes, g.node(i))
	}
	for i := range g.Intn(14) {
		pod := g.pod(fmt.Sprintf("pod-%d", i))
		pod.Spec.NodeName = c.Nodes[g.Intn(len(c.Nodes))].Name
		if g.chance(10) {
			now := metav1.Unix(1700000000, 0)
			pod.DeletionTimestamp, pod.Finalizers = &now, []string{"example.com/keep"}
		}
		c.Pods = append(c.Pods, pod)
	}
	c.Pod = g.pod("incoming")
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	snapshot := cache.NewSnapshot(c.Pods, c.Nodes)
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := configuration.Profiles[0]
	enabled := profile.Plugins.MultiPoint.Enabled
	profile.Plugins.MultiPoint.Enabled = nil
	for _, plugin := range enabled {
		if !left[plugin.Name] {
			profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, plugin)
		}
	}
	scheduling, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile,
		frameworkruntime.WithSnapshotSharedLister(snapshot), frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory))
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	_, status, _ := scheduling.RunPreFilterPlugins(ctx, state, c.Pod)
	if !status.IsSuccess() {
		c.PreFilter = status.Message()
		return c, nil
	}
	var feasible []fwk.NodeInfo
	for _, node := range c.Nodes {
		info, err := snapshot.Get(node.Name)
		if err != nil {
			return nil, err
		}
		status := scheduling.RunFilterPlugins(ctx, state, c.Pod, info)
		c.Reasons[node.Name] = status.Message()
		if status.IsSuccess() {
			feasible = append(feasible, info)
			c.Feasible = append(c.Feasible, node.Name)
		}
	}
	if len(feasible) == 0 {
		return c, nil
	}
	if status := scheduling.RunPreScorePlugins(ctx, state, c.Pod, feasible); !status.IsSuccess() {
		return nil, status.AsError()
	}
	scores, status := scheduling.RunScorePlugins(ctx, state, c.Pod, feasible)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	for _, node := range scores {
		for _, score := range node.Scores {
			c.Scores[score.Name] = append(c.Scores[score.Name], score.Score)
		}
	}
	return c, nil
}

func main() {
	metrics.Register()
	arguments, evaluate := os.Args[1:], func(seed int64) (any, error) { return evaluate(seed) }
	if arguments[0] == "objects" {
		arguments, evaluate = arguments[1:], func(seed int64) (any, error) { return evaluateObjects(seed) }
	}
	first, _ := strconv.ParseInt(arguments[0], 10, 64)
	count, _ := strconv.ParseInt(arguments[1], 10, 64)
	encoder := json.NewEncoder(os.Stdout)
	for seed := first; seed < first+count; seed++ {
		c, err := evaluate(seed)
		if err != nil {
			fmt.Fprintln(os.Stderr, "seed", seed, err)
			os.Exit(1)
		}
		if err := encoder.Encode(c); err != nil {
			panic(err)
		}
	}
}
