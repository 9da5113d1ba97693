// Records what Kubernetes' own CEL environment says about each expression of a list: issues, result type, estimated
// cost, value or error, and what the evaluation cost.
//
//	go run . ../../crates/cel/tests/recorded
//
// The folder has expressions.txt (one per line; `json:` before a JSON string; `#` begins a comment), schema.json and
// self.json (a typed variable `self`), object.json (an untyped variable `object`); verdicts.jsonl is written.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Verdict is one line of what is recorded.
type Verdict struct {
	Expression string  `json:"expression"`
	Issues     string  `json:"issues,omitempty"`
	Type       string  `json:"type,omitempty"`
	Min        uint64  `json:"min,omitempty"`
	Max        uint64  `json:"max,omitempty"`
	Program    string  `json:"program,omitempty"`
	Value      string  `json:"value,omitempty"`
	Error      string  `json:"error,omitempty"`
	Cost       *uint64 `json:"cost,omitempty"`
}

// rules answers authorization checks by simple rules that the Rust test knows too.
type rules struct{}

func (rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case a.GetVerb() == "fail":
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("no answer for %s", a.GetUser().GetName())
	case a.GetUser().GetName() != "alice":
		return authorizer.DecisionDeny, "not alice but " + a.GetUser().GetName(), nil
	case a.GetVerb() == "get":
		return authorizer.DecisionAllow, strings.Join([]string{a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath()}, "|"), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func main() {
	dir := os.Args[1]
	env, sizes, vars := prepare(dir)
	out, err := os.Create(filepath.Join(dir, "verdicts.jsonl"))
	check(err)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, expression := range expressions(filepath.Join(dir, "expressions.txt")) {
		if verdict := judgeSafely(env, sizes, vars, expression); verdict != nil {
			check(encoder.Encode(verdict))
		}
	}
	check(out.Close())
}

func prepare(dir string) (*cel.Env, *library.CostEstimator, map[string]any) {
	schema := &openapi.Schema{Schema: &spec.Schema{}}
	read(dir, "schema.json", schema.Schema)
	self := common.SchemaDeclType(schema, true).MaybeAssignTypeName("Self")
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("self", self.CelType()),
			cel.Variable("object", cel.DynType),
			cel.Variable("authorizer", library.AuthorizerType),
			library.JSONPatch(),
		},
		DeclTypes: []*apiservercel.DeclType{self},
	})
	check(err)
	env, err := set.Env(environment.StoredExpressions)
	check(err)
	var value, object map[string]any
	read(dir, "self.json", &value)
	read(dir, "object.json", &object)
	vars := map[string]any{
		"self":       common.UnstructuredToVal(numbers(value), schema.WithTypeAndObjectMeta()),
		"object":     numbers(object),
		"authorizer": library.NewAuthorizerVal(&user.DefaultInfo{Name: "alice"}, rules{}),
	}
	return env, &library.CostEstimator{SizeEstimator: &sizes{self}}, vars
}

// judgeSafely has no verdict for what makes cel-go itself panic.
func judgeSafely(env *cel.Env, estimator *library.CostEstimator, vars map[string]any, expression string) (verdict *Verdict) {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", expression, reason)
			verdict = nil
		}
	}()
	judged := judge(env, estimator, vars, expression)
	return &judged
}

func judge(env *cel.Env, estimator *library.CostEstimator, vars map[string]any, expression string) Verdict {
	verdict := Verdict{Expression: expression}
	ast, issues := env.Compile(expression)
	if issues != nil && issues.Err() != nil {
		verdict.Issues = issues.String()
		return verdict
	}
	verdict.Type = checker.FormatCELType(ast.OutputType())
	program, err := env.Program(ast, cel.CostLimit(1_000_000), cel.CostTracking(estimator), cel.InterruptCheckFrequency(100))
	if err != nil {
		verdict.Program = err.Error()
		return verdict
	}
	estimate, err := env.EstimateCost(ast, estimator)
	check(err)
	verdict.Min, verdict.Max = estimate.Min, estimate.Max
	value, details, err := program.ContextEval(context.Background(), vars)
	if err != nil {
		verdict.Error = err.Error()
	} else {
		verdict.Value = render(value)
	}
	if details != nil {
		verdict.Cost = details.ActualCost()
	}
	return verdict
}

// sizes knows how large each part of `self` may be.
type sizes struct{ root *apiservercel.DeclType }

func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	if len(path) == 0 || path[0] != "self" {
		return nil
	}
	at := s.root
	for _, name := range path[1:] {
		var next *apiservercel.DeclType
		switch name {
		case "@items", "@values":
			next = at.ElemType
		case "@keys":
			next = at.KeyType
		default:
			if field, ok := at.Fields[name]; ok {
				next = field.Type
			}
		}
		if next == nil {
			return nil
		}
		at = next
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.MaxElements)}
}

func (s *sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func expressions(file string) []string {
	text, err := os.ReadFile(file)
	check(err)
	var all []string
	for _, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "json:"):
			var expression string
			check(json.Unmarshal([]byte(line[5:]), &expression))
			all = append(all, expression)
		default:
			all = append(all, line)
		}
	}
	return all
}

// numbers makes whole numbers integers, as Kubernetes reads its objects.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, each := range v {
			v[key] = numbers(each)
		}
	case []any:
		for at, each := range v {
			v[at] = numbers(each)
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}

func read(dir, name string, into any) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	check(err)
	check(json.Unmarshal(text, into))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
