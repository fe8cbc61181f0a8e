// Package policyfile reads the policies of a program from a YAML file:
//
//	version: 1
//	presets:
//	  - dingtalk: {app: dingabc, edition: professional}
//	policies:
//	  - name: shop
//	    match: "{shop}.example.com/admin/"
//	    key: "{shop}"
//	    limit: 2/s burst 40
//	tests:
//	  - request: GET https://acme.example.com/admin/orders.json
//	    policies: {shop: {cost: 1, key: acme}}
//
// [Load] and [Parse] are strict: a file with a mistake is not read, and all its mistakes
// are reported at once, in the order of the file, as compilers do. [File.Check] runs the
// file's own tests. The presets that need no code are files of this form themselves: [Preset]
// returns their rows to programs with a table in Go. [Schema] describes the form for editors. The
// page on [policy files] has every field.
//
// [policy files]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/policyfile.md
package policyfile
