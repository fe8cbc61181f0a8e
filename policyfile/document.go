package policyfile

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// A document is the root of a file.
type document struct {
	version int
	tables  []presetTable
	rows    []row
	tunnels []tunnelHost
	tests   []placedTest
}

// A tunnelHost is a host to which a proxy carries tunnels of TLS, and where the host stands.
type tunnelHost struct {
	host string
	at   *yaml.Node
}

// tunnelHosts is the shape of a tunnelHost.
var tunnelHosts = defined("tunnel", shape[tunnelHost]{form: tunnelName.form, schema: tunnelName.schema, read: func(r *reader, n *yaml.Node) (tunnelHost, bool) {
	host, ok := tunnelName.read(r, n)
	return tunnelHost{host, follow(n)}, ok
}})

// tunnelName is a host, with a port unless the port is 443.
var tunnelName = scalar(`a host such as "api.example.com" or "api.example.com:8443"`, anyText, func(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, "/@?#*{}% \t") {
		return s, fmt.Errorf("%q is not a host: write it without a scheme, a path and wildcards, such as api.example.com", clip(s))
	}
	return s, nil
})

// checkTunnels refuses the hosts to which a proxy would carry no tunnel.
func (r *reader) checkTunnels(d *document) {
	policies := d.policies()

	// With a mistake elsewhere the table says nothing reliable.
	if len(d.tunnels) == 0 || len(r.errs) > 0 {
		return
	}

	// List all hosts as tunnels: then Blind refuses only what a policy must see.
	table := proxy.NewTable(policies, d.hosts()...)
	for _, t := range d.tunnels {
		policy, why := table.Blind(t.host)
		switch {
		case !table.Has(t.host):
			r.fail(t.at, "no policy names the host %q, so no tunnel leads there", clip(t.host))
		case why != "":
			r.fail(t.at, "policy %q: %s: a tunnel to %q would be refused", clip(policy), why, clip(t.host))
		}
	}
}

// hosts returns the hosts to which tunnels of TLS are carried.
func (d *document) hosts() (all []string) {
	for _, t := range d.tunnels {
		all = append(all, t.host)
	}
	return all
}

// runbooks returns the addresses of the policies that have one.
func (d *document) runbooks() map[string]string {
	all := make(map[string]string)
	for i := range d.rows {
		if address := d.rows[i].runbook; address != "" {
			all[d.rows[i].Name] = address
		}
	}
	return all
}

// A presetTable is the rows of a preset and where it is named.
type presetTable struct {
	rows      presetRows
	at        *yaml.Node
	wildcards []wildcard // that its keys and costs name
}

// policies returns the rows that requests match.
func (d *document) policies() (all []throttle.Policy) {
	for _, t := range d.tables {
		all = append(all, t.rows...)
	}
	for _, p := range d.rows {
		if !p.named {
			all = append(all, p.Policy)
		}
	}
	return all
}

// named returns the rows that are used by name only.
func (d *document) named() (all []throttle.Policy) {
	for _, p := range d.rows {
		if p.named {
			all = append(all, p.Policy)
		}
	}
	return all
}

// lines returns where each policy stands.
func (d *document) lines() map[string]int {
	all := make(map[string]int)
	for _, t := range d.tables {
		for _, p := range t.rows {
			all[p.Name] = t.at.Line
		}
	}
	for _, p := range d.rows {
		all[p.Name] = p.at.Line
	}
	return all
}

// root is the shape of a file.
var root = shape[document]{read: documentFields.read, schema: func() schema {
	s := documentFields.schema()
	s["patternProperties"] = schema{"^x-": true}
	defs := schema{}
	for name, of := range definitions {
		defs[name] = of()
	}
	s["$defs"] = defs
	return s
}}

var documentFields = record[document]{name: "the file", ignored: "x-", fields: []field[document]{
	versionField,
	partly("presets", "tables of the library: names of packages, or of files of the catalog; options have the names of the Go fields in lower case with hyphens", list(defined("preset", placed(presets))), func(d *document, v []presetTable) { d.tables = v }),
	policiesField,
	partly("tunnels", "hosts to which throttle proxy carries tunnels of TLS: their limits count connections, and the requests inside are neither counted nor held; without the list the proxy refuses such tunnels", list(tunnelHosts), func(d *document, v []tunnelHost) { d.tunnels = v }),
	testsField,
}}

// The fields that files of the catalog have, too.
var (
	versionField  = must(member("version", "the version of this form; a program refuses a version that it does not know", number(1), func(d *document, v int) { d.version = v }))
	policiesField = partly("policies", "rows of your own", list(policyRow), func(d *document, v []row) { d.rows = v })
	testsField    = partly("tests", "requests, and which policies they must match", list(defined("test", test.shape())), func(d *document, v []placedTest) { d.tests = v })
)

// placed returns the shape of a preset that knows its place.
func placed(of shape[presetRows]) shape[presetTable] {
	return shape[presetTable]{form: of.form, schema: of.schema, read: func(r *reader, n *yaml.Node) (presetTable, bool) {
		r.wildcards = nil
		rows, ok := of.read(r, n)
		return presetTable{rows, follow(n), r.wildcards}, ok
	}}
}

// Schema returns the JSON Schema (2020-12) of a file, for editors. It accepts every file
// that Parse accepts; what only Parse can tell, such as a limit that is none, it lets pass.
func Schema() []byte {
	s := root.schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "policies of throttle"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return append(text, '\n')
}
