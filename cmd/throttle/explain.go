package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/shares"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// An explanation is the JSON of explain.
type explanation struct {
	Version  int         `json:"version"`
	Request  string      `json:"request"`
	Policies []explained `json:"policies"`

	charges []store.Charge
}

// An explained is one policy that a request matches.
type explained struct {
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Cost   int    `json:"cost"`
	Budget string `json:"budget"`           // its key is hashed
	Share  string `json:"share,omitempty"`  // its name is hashed
	Weight int    `json:"weight,omitempty"` // of the share
	Shadow bool   `json:"shadow,omitempty"`
	Node   bool   `json:"node,omitempty"`
	State  *state `json:"state,omitempty"`

	Note *fleet.Note `json:"note,omitempty"` // note of the operator who paused the budget
}

// newExplain returns the command explain, which prints the policies of one request.
func newExplain() *cobra.Command {
	var headers []string
	var at server
	c := &cobra.Command{
		Use:     "explain FILE METHOD URL",
		Example: `  throttle explain policies.yaml GET https://api.example.com/orders`,
		Short:   "Explain which policies a request matches, and what holds it now",
		Long: `Explain prints which policies of a file a request matches, what the request costs,
and which budgets it needs. Keys are hashed, as in Redis. With --redis, or with
THROTTLE_REDIS, it also prints the present state of the budgets and when the request
could start. It exits with 1 if the request could not start at once.`,
		Args: argumentCount(3, 3),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := loadInput(c, args[0])
			if err != nil {
				return err
			}

			req, err := newRequest(args[1], args[2], headers)
			if err != nil {
				return err
			}

			e, err := explain(f, req)
			if err == nil && at.hasAddress() {
				err = at.withFleet(c.Context(), e.ask)
			}
			if err != nil {
				return err
			}

			err = output(c, e, func() error { return e.print(c) })
			if err == nil && e.held() {
				err = &exit{code: exitFound}
			}

			return err
		},
	}

	c.Flags().StringArrayVarP(&headers, "header", "H", nil, `header field of the request, such as "X-App: a"; may be repeated`)
	at.addFlags(c)
	return c
}

// newRequest returns the request in the arguments, with the headers of --header. Its URL must name a host.
func newRequest(method, url string, headers []string) (*http.Request, error) {
	// Check the method alone first, so that the error names the argument that is wrong.
	if _, err := http.NewRequest(method, "/", nil); err != nil {
		return nil, fmt.Errorf("%q is not a method such as GET", method)
	}
	req, err := http.NewRequest(method, url, nil)
	if err != nil || req.URL.Host == "" {
		return nil, fmt.Errorf("%q is not a URL such as https://api.example.com/v1/orders", url)
	}
	req.Header, err = parseHeader(headers)
	return req, err
}

// parseHeader parses header fields such as "X-App: a". It refuses the field Host: the host of a request is in its URL.
func parseHeader(fields []string) (http.Header, error) {
	header := make(http.Header)
	for _, field := range fields {
		name, value, ok := strings.Cut(field, ":")
		if !ok {
			return nil, fmt.Errorf("%q is not a header such as \"X-App: a\"", field)
		}
		if strings.EqualFold(strings.TrimSpace(name), "Host") {
			return nil, fmt.Errorf("%q has no effect, because the host of a request is no header: write it into the URL", field)
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return header, nil
}

// explain computes the charges of a request. The states of their budgets and the notes are missing: see ask.
func explain(f *policyfile.File, req *http.Request) (*explanation, error) {
	e := &explanation{Version: outputVersion, Request: req.Method + " " + req.URL.Host + req.URL.Path, Policies: []explained{}}

	// Explain sends nothing, so a store in memory will do.
	t, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: f.Policies})
	if err != nil {
		return nil, err
	}

	e.charges = t.Explain(req)
	for _, c := range e.charges {
		x := explained{
			Policy: c.Budget.Policy, Limit: c.Limit.String(), Cost: c.Cost, Budget: c.Budget.String(), Shadow: c.Shadow, Node: c.Node,
		}
		if c.Share.ID != 0 {
			x.Share, x.Weight = shares.Name(c.Share.ID), max(1, c.Share.Weight) // a weight of 0 counts as 1
		}

		e.Policies = append(e.Policies, x)
	}

	return e, nil
}

// ask reads the states of the budgets, and the notes of operators' pauses.
func (e *explanation) ask(ctx context.Context, all *fleet.Fleet) error {
	for i, c := range e.charges {
		// The budget of a node is in the node's memory, where nobody can read it.
		if c.Node {
			continue
		}

		st, note, err := all.Describe(ctx, c)
		if err != nil {
			return err
		}

		x := &e.Policies[i]
		x.Note = note
		x.State = &state{
			Used: st.Used, Booked: st.Booked, Waiting: st.Waiting, Callers: st.Callers,
			Wait: st.Wait.Milliseconds(), Paused: st.Paused.Milliseconds(),
			Repeated: st.Repeated, Ceiling: st.Ceiling, status: st,
		}
		if st.Told.N() > 0 {
			x.State.Told, x.State.ToldAgo = st.Told.String(), st.ToldAgo.Milliseconds()
		}

		// JSON has no infinity.
		if st.Wait == throttle.Never {
			x.State.Wait = -1
		}
	}

	return nil
}

// held reports whether the request could not start at once, as far as ask has read the states of its budgets.
func (e *explanation) held() bool {
	for _, x := range e.Policies {
		// A shadow policy holds nothing.
		if x.State == nil || x.Shadow {
			continue
		}
		if st := &x.State.status; st.Wait > 0 || waitsForSlot(st) {
			return true
		}
	}
	return false
}

// print writes the explanation as a table for people.
func (e *explanation) print(c *cobra.Command) error {
	out := c.OutOrStdout()
	if len(e.Policies) == 0 {
		_, err := fmt.Fprintf(out, "%s matches no policy: it passes\n", clean(e.Request))
		return err
	}
	t := table{titles: []string{"POLICY", "LIMIT", "COST", "BUDGET", ""}}
	for _, x := range e.Policies {
		t.add(x.Policy, x.Limit, x.Cost, x.Budget, x.now())
	}
	return t.print(out)
}

// now summarizes the state of the budget, if ask has read it, and the request's share. It says if the policy only counts.
func (x *explained) now() string {
	var words []string
	switch s := x.State; {
	case x.Node:
		words = append(words, "each node's own")
	case x.Note != nil: // ask has read the state, too
		words = append(noteWords(x.Note, s.status.Paused), s.words()...)
	case s != nil:
		words = s.words()
	}

	if x.Share != "" {
		words = append(words, fmt.Sprintf("share %s of weight %d", x.Share, x.Weight))
	}
	if x.Shadow {
		words = append(words, "only counts")
	}

	return strings.Join(words, ", ")
}
