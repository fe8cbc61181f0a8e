// Package manifests renders the manifests of folder deploy as overlays of users do.
package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const deploy = "../../../deploy"

// requireImage requires the image of the release that the command's module requires of the root.
func requireImage(t *testing.T, proxy *core.Container) {
	t.Helper()
	required := regexp.MustCompile(`(?m)^\tgithub.com/fleetthrottle/throttle (v\S+)$`).FindStringSubmatch(read(t, "../../../cmd/throttle/go.mod"))
	require.NotNil(t, required)
	require.Equal(t, "ghcr.io/fleetthrottle/throttle:"+required[1], proxy.Image)
}

// objects are what an overlay renders.
type objects struct {
	deployments []apps.Deployment
	services    []core.Service
	configMaps  []core.ConfigMap
}

// copyDeploy returns a folder that has a copy of folder deploy, beside which a test puts the overlay of a user.
func copyDeploy(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder+"/deploy", os.DirFS(deploy)))
	return folder
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// render builds an overlay, and reads each object by its type of Kubernetes. A field that the type does not have is an error.
func render(folder string) (all objects, err error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return all, err
	}

	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			return all, err
		}

		switch r.GetKind() {
		case "Deployment":
			all.deployments = append(all.deployments, apps.Deployment{})
			err = strict(text, &all.deployments[len(all.deployments)-1])
		case "Service":
			all.services = append(all.services, core.Service{})
			err = strict(text, &all.services[len(all.services)-1])
		default: // a kind that is new here needs its type
			all.configMaps = append(all.configMaps, core.ConfigMap{})
			err = strict(text, &all.configMaps[len(all.configMaps)-1])
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// strict reads an object as the API server does with strict validation: a field that it does not know is an error, in any case.
func strict(text []byte, into any) error {
	unknown, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(unknown, err)...)
}

// require requires that what the objects name is there: volumes, ConfigMaps, ports, pods of Services, and Secrets that README.md makes.
func (o *objects) require(t *testing.T) {
	t.Helper()
	for _, d := range o.deployments {
		pod := d.Spec.Template.Spec
		require.Subset(t, d.Spec.Template.Labels, d.Spec.Selector.MatchLabels, d.Name)

		var volumes []string
		for _, v := range pod.Volumes {
			volumes = append(volumes, v.Name)
			if v.ConfigMap != nil {
				named := func(m core.ConfigMap) bool { return m.Name == v.ConfigMap.Name && m.Namespace == d.Namespace }
				require.True(t, slices.ContainsFunc(o.configMaps, named), v.ConfigMap.Name)
			}
			if v.Secret != nil {
				requireSecret(t, v.Secret.SecretName, "")
			}
		}

		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, m := range c.VolumeMounts {
				require.Contains(t, volumes, m.Name)
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil {
					requireSecret(t, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
				}
			}
			for _, p := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				if p != nil {
					require.Contains(t, portsOf(c), p.HTTPGet.Port.StrVal)
				}
			}
		}
	}

	for _, s := range o.services {
		pods := slices.IndexFunc(o.deployments, func(d apps.Deployment) bool { return d.Namespace == s.Namespace && d.Name == s.Spec.Selector["app"] })
		require.NotEqual(t, -1, pods, s.Name)
		require.Equal(t, s.Spec.Selector, o.deployments[pods].Spec.Template.Labels)
		for _, p := range s.Spec.Ports {
			require.Contains(t, portsOf(o.deployments[pods].Spec.Template.Spec.Containers[0]), p.TargetPort.StrVal)
		}
	}
}

func portsOf(c core.Container) (names []string) {
	for _, p := range c.Ports {
		names = append(names, p.Name)
	}
	return names
}

// requireSecret requires that a command of README.md makes a Secret, with the key if one is given.
func requireSecret(t *testing.T, name, key string) {
	t.Helper()
	require.Contains(t, read(t, deploy+"/README.md"), "kubectl create secret generic "+name+" --from-literal "+key)
}

// proxyOf returns the container of the proxy, and whether it is a sidecar.
func proxyOf(d apps.Deployment) (proxy *core.Container, sidecar bool) {
	pod := d.Spec.Template.Spec
	named := func(c core.Container) bool { return c.Name == "throttle" }
	if i := slices.IndexFunc(pod.InitContainers, named); i >= 0 {
		return &pod.InitContainers[i], true
	}
	if i := slices.IndexFunc(pod.Containers, named); i >= 0 {
		return &pod.Containers[i], false
	}
	return nil, false
}

// TestExample: the example has a program with the proxy beside it, which starts first and reads the policies of the ConfigMap.
func TestExample(t *testing.T) {
	got, err := render(copyDeploy(t) + "/deploy/example")
	require.NoError(t, err)
	got.require(t)
	require.Len(t, got.deployments, 1)

	proxy, sidecar := proxyOf(got.deployments[0])
	require.True(t, sidecar)
	requireImage(t, proxy)
	require.Equal(t, core.ContainerRestartPolicyAlways, *proxy.RestartPolicy)
	require.Equal(t, "program", got.deployments[0].Spec.Template.Spec.Containers[0].Name)

	require.Len(t, got.configMaps, 1)
	require.Equal(t, "throttle-policies", got.configMaps[0].Name, "a suffix would restart the pods")
	require.Contains(t, got.configMaps[0].Data, "policies.yaml")
	require.Equal(t, "/etc/throttle/policies.yaml", proxy.Args[1])
	require.Equal(t, "/etc/throttle", proxy.VolumeMounts[0].MountPath)
}

// TestSidecarInOverlay: of a user's Deployments only those with the label get the proxy. It starts before their own init containers,
// and their volumes stay.
func TestSidecarInOverlay(t *testing.T) {
	folder := copyDeploy(t)
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAME, labels: LABELS}\n" +
		"spec:\n  selector: {matchLabels: {app: NAME}}\n  template:\n    metadata: {labels: {app: NAME}}\n    spec:\n" +
		"      initContainers: [{name: migrate, image: migrate}]\n      containers: [{name: program, image: program}]\n      volumes: [{name: own, emptyDir: {}}]\n"
	write(t, folder+"/mine/with.yaml", strings.NewReplacer("NAME", "with", "LABELS", "{throttle: sidecar}").Replace(deployment))
	write(t, folder+"/mine/without.yaml", strings.NewReplacer("NAME", "without", "LABELS", "{}").Replace(deployment))
	write(t, folder+"/mine/policies.yaml", "version: 1\n")
	write(t, folder+"/mine/kustomization.yaml", "resources: [with.yaml, without.yaml]\nnamespace: limits\ncomponents: [../deploy/sidecar]\n"+
		"configMapGenerator: [{name: throttle-policies, files: [policies.yaml], options: {disableNameSuffixHash: true}}]\n")

	got, err := render(folder + "/mine")
	require.NoError(t, err)
	got.require(t)
	require.Len(t, got.deployments, 2)
	for _, d := range got.deployments {
		proxy, _ := proxyOf(d)
		require.Equal(t, d.Name == "with", proxy != nil, d.Name)
		require.Equal(t, "migrate", d.Spec.Template.Spec.InitContainers[len(d.Spec.Template.Spec.InitContainers)-1].Name)
		require.True(t, slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v core.Volume) bool { return v.Name == "own" }))
	}
}

// TestSharedOverlay: the overlay that the comment in shared/kustomization.yaml shows renders one proxy in the user's namespace, of the user's image; without an
// overlay it is the release's.
func TestSharedOverlay(t *testing.T) {
	folder := copyDeploy(t)
	comment := regexp.MustCompile(`(?m)^# {5}.*$`).FindAllString(read(t, folder+"/deploy/shared/kustomization.yaml"), -1)
	overlay := strings.ReplaceAll(strings.Join(comment, "\n"), "#     ", "")
	address := regexp.MustCompile(`https://github.com/fleetthrottle/throttle//deploy/shared\?ref=v[^\]]+`)
	require.Regexp(t, address, overlay)
	write(t, folder+"/mine/kustomization.yaml", address.ReplaceAllString(overlay, "../deploy/shared"))

	got, err := render(folder + "/mine")
	require.NoError(t, err)
	got.require(t)
	require.Len(t, got.deployments, 1)
	require.Len(t, got.services, 1)
	require.Equal(t, "limits", got.deployments[0].Namespace)
	require.Equal(t, "limits", got.services[0].Namespace)
	proxy, sidecar := proxyOf(got.deployments[0])
	require.False(t, sidecar)
	require.Equal(t, "registry.example.com/throttle:mine", proxy.Image)

	plain, err := render(folder + "/deploy/shared")
	require.NoError(t, err)
	proxy, _ = proxyOf(plain.deployments[0])
	requireImage(t, proxy)
}

// TestMistakesAreSeen: a field that Kubernetes does not have, and one of a wrong type, are errors.
func TestMistakesAreSeen(t *testing.T) {
	for _, c := range []struct{ file, good, bad, folder string }{
		{"sidecar/sidecar.yaml", "restartPolicy: Always", "restartPolicies: Always", "/deploy/example"},
		{"sidecar/sidecar.yaml", "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: a minute", "/deploy/example"},
		{"sidecar/sidecar.yaml", "cpu: 50m", "cpu: 50 mm", "/deploy/example"},
		{"shared/throttle.yaml", "sleep: {seconds: 5}", "sleep: {second: 5}", "/deploy/shared"},
		{"shared/throttle.yaml", "port: 7070, targetPort", "port: 7070, target", "/deploy/shared"},
		{"shared/throttle.yaml", "seccompProfile:", "secCompProfile:", "/deploy/shared"},
		{"shared/throttle.yaml", "kind: Service", "kind: Servise", "/deploy/shared"},
	} {
		folder := copyDeploy(t)
		file := folder + "/deploy/" + c.file
		text := read(t, file)
		require.Contains(t, text, c.good)
		write(t, file, strings.Replace(text, c.good, c.bad, 1))

		_, err := render(folder + c.folder)
		require.Error(t, err, c.bad)
	}
}
