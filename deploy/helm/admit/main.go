// Admit validates manifests from standard input with the code of Kubernetes' API
// server. It sets defaults and checks the rules of each kind. With -restricted it also
// checks the pod security level "restricted". It prints a line per problem, and exits
// with code 1 if there are problems. It skips kinds that are not part of Kubernetes;
// schemas.py checks these kinds, and unknown fields.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// namespace is the namespace of a manifest that names none.
const namespace = "default"

// largest is the buffer size in bytes for one manifest. Kubernetes stores at most 1.5
// MiB.
const largest = 2 << 20

func main() {
	restricted := flag.Bool("restricted", false, "check also that pods meet the pod security level restricted")
	flag.Parse()
	wrong, err := admit(os.Stdin, os.Stdout, *restricted)
	if err != nil {
		fmt.Fprintln(os.Stderr, "admit:", err)
	}
	if err != nil || wrong {
		os.Exit(1)
	}
}

func admit(manifests io.ReadCloser, out io.Writer, restricted bool) (wrong bool, err error) {
	reader, buffer, seen := documents.NewDocumentDecoder(manifests), make([]byte, largest), 0
	for {
		n, err := reader.Read(buffer)
		switch {
		case errors.Is(err, io.EOF) && seen == 0:
			return true, errors.New("no manifest")
		case errors.Is(err, io.EOF):
			return wrong, nil
		case err != nil:
			return true, err
		}
		manifest, err := yaml.YAMLToJSON(buffer[:n])
		if err != nil {
			return true, err
		}
		if string(manifest) == "null" { // only comments
			continue
		}
		object, kind, err := legacyscheme.Codecs.UniversalDecoder().Decode(manifest, nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
			continue
		case err != nil:
			return true, err
		}
		seen++
		for _, complaint := range problems(object) {
			wrong = true
			fmt.Fprintln(out, kind.Kind, complaint)
		}
		if restricted {
			for _, complaint := range restrictedViolations(manifest) {
				wrong = true
				fmt.Fprintln(out, kind.Kind, complaint)
			}
		}
	}
}

// problems returns the problems that Kubernetes finds in an object.
func problems(object runtime.Object) field.ErrorList {
	pods := corevalidation.PodValidationOptions{}
	switch o := object.(type) {
	case *apps.StatefulSet:
		o.Namespace = namespace
		return appsvalidation.ValidateStatefulSet(o, appsvalidation.StatefulSetValidationOptions{}, pods)
	case *core.Service:
		o.Namespace = namespace
		if o.Spec.ClusterIP != "" { // the defaults do not set ClusterIPs
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		return corevalidation.ValidateServiceCreate(o)
	case *core.ConfigMap:
		o.Namespace = namespace
		return corevalidation.ValidateConfigMap(o)
	case *core.ServiceAccount:
		o.Namespace = namespace
		return corevalidation.ValidateServiceAccount(o)
	case *core.Pod:
		o.Namespace = namespace
		return corevalidation.ValidatePodCreate(o, pods)
	case *policy.PodDisruptionBudget:
		o.Namespace = namespace
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *networking.NetworkPolicy:
		o.Namespace = namespace
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{})
	case *networking.Ingress:
		o.Namespace = namespace
		return networkingvalidation.ValidateIngressCreate(o)
	case *autoscaling.HorizontalPodAutoscaler:
		o.Namespace = namespace
		return autoscalingvalidation.ValidateHorizontalPodAutoscaler(o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{MinReplicasLowerBound: 1})
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("admit has no rules for %T; add them to problems", object))}
}

// podSecurityViolations returns the violations of the pod security level "restricted".
func restrictedViolations(manifest []byte) (complaints []string) {
	object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(manifest, nil, nil)
	if err != nil {
		return []string{err.Error()}
	}
	var meta metav1.ObjectMeta
	var spec corev1.PodSpec
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		meta, spec = o.Spec.Template.ObjectMeta, o.Spec.Template.Spec
	case *corev1.Pod:
		meta, spec = o.ObjectMeta, o.Spec
	default:
		return nil
	}
	checks, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		return []string{err.Error()}
	}
	for _, result := range checks.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &meta, &spec) {
		if !result.Allowed {
			complaints = append(complaints, result.ForbiddenReason+": "+result.ForbiddenDetail)
		}
	}
	return complaints
}
