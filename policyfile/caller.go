package policyfile

import "net/http"

// A callerFunc says two ids of a request's caller, as the Caller of a preset's options
// does.
type callerFunc = func(*http.Request) (a, b string)

// callerDoc is the schema's description of both fields.
const callerDoc = "whose a request is, for a program that calls for several; it replaces the ids beside it"

// callerID returns the field "caller" of a preset with one id.
func callerID[O any](id string, set func(*O, keyFunc)) field[O] {
	ids := record[keyFunc]{name: "a caller", fields: []field[keyFunc]{
		must(member(id, "the key of that id", key, func(c *keyFunc, v keyFunc) { *c = v })),
	}}
	return member("caller", callerDoc, ids.shape(), set)
}

// callerIDs returns the caller field of a preset with two ids. An omitted id is "".
func callerIDs[O any](a, b string, set func(*O, callerFunc)) field[O] {
	type keys struct{ a, b keyFunc }
	ids := record[keys]{name: "a caller", fields: []field[keys]{
		member(a, "the key of that id", key, func(k *keys, v keyFunc) { k.a = v }),
		member(b, "the key of that id", key, func(k *keys, v keyFunc) { k.b = v }),
	}}
	return member("caller", callerDoc, filled(ids.shape()), func(o *O, k keys) {
		set(o, func(r *http.Request) (string, string) { return valueOf(k.a, r), valueOf(k.b, r) })
	})
}

// valueOf returns a key's value for a request, or "" without a key.
func valueOf(k keyFunc, r *http.Request) string {
	if k == nil {
		return ""
	}
	return k(r)
}
