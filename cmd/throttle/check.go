package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
)

// A checkResult is what check prints as JSON.
type checkResult struct {
	Version  int       `json:"version"`
	Files    []tally   `json:"files"`
	Findings []finding `json:"findings"`
}

// A tally says what a file holds.
type tally struct {
	File     string `json:"file"`
	Policies int    `json:"policies"`
	Tests    int    `json:"tests"`

	Untested []string `json:"untested"` // policies that no test says to match

	example string // the beginning of a test of one of them
}

// tallyOf returns what a file holds.
func tallyOf(file string, f *policyfile.File) tally {
	t := tally{File: file, Policies: len(f.All()), Tests: len(f.Tests), Untested: []string{}}
	for _, p := range f.Policies {
		tested := slices.ContainsFunc(f.Tests, func(test policyfile.Test) bool {
			return slices.ContainsFunc(test.Expects, func(e policyfile.Expectation) bool { return e.Policy == p.Name })
		})
		if tested {
			continue
		}
		t.Untested = append(t.Untested, p.Name)
		if t.example == "" {
			t.example = fmt.Sprintf("{request: GET https://HOST/PATH, policies: {%s: {cost: 1}}}", p.Name)
		}
	}

	return t
}

// mostUntested is how many policies without a test are named.
const mostUntested = 5

// untested says which policies no test proves, and how to write a test, "" if there are none.
func (t *tally) untested() string {
	if len(t.Untested) == 0 {
		return ""
	}
	names := strings.Join(t.Untested[:min(len(t.Untested), mostUntested)], ", ")
	if more := len(t.Untested) - mostUntested; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("no test proves which requests these policies match: %s; write one below \"tests:\", such as\n  - %s", names, t.example)
}

func newCheck() *cobra.Command {
	var nodes int
	var strict bool
	c := &cobra.Command{
		Use: "check FILE...",
		Example: `  throttle check policies.yaml
  throttle check policies.yaml --strict --nodes 60`,
		Short: "Check files of policies, and run their tests",
		Long: `Check reads files of policies, reports all mistakes at once, runs the tests in
them, and warns of what cannot keep an upstream's limits. It exits with 1 if
there are mistakes, or tests that fail.`,
		Args: argumentCount(1, manyArguments),
		RunE: func(c *cobra.Command, files []string) error {
			all := checkResult{Version: outputVersion, Files: []tally{}, Findings: []finding{}}
			for _, file := range files {
				if err := all.check(c, file, nodes); err != nil {
					return err
				}
			}

			done, err := printJSON(c, all)
			if !done {
				_, err = io.WriteString(c.OutOrStdout(), all.text())
			}
			if err == nil && all.failed(strict) {
				err = &exit{code: exitFound}
			}

			return err
		},
	}

	c.Flags().IntVar(&nodes, "nodes", 0, "warn of limits that so many nodes cannot share while Redis is away")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 for warnings, too")
	return c
}

// check checks one file, and adds its tally and its findings. It returns the error of a file that cannot
// be read.
func (all *checkResult) check(c *cobra.Command, file string, nodes int) error {
	f, err := loadInput(c, file)
	if err != nil {
		return all.add("error", err)
	}

	all.Files = append(all.Files, tallyOf(file, f))
	if err := all.add("error", f.Check()); err != nil {
		return err
	}

	all.Findings = append(all.Findings, advice(file, f, nodes)...)
	for _, e := range f.Warnings() {
		all.Findings = append(all.Findings, finding{"warning", file, e.Line, e.Column, e.Text, ""})
	}

	return nil
}

// add adds the mistakes in a file that err holds, as findings of a severity. It returns err if err holds
// no mistakes.
func (all *checkResult) add(severity string, err error) error {
	mistakes := policyfile.Mistakes(err)
	if err != nil && mistakes == nil {
		return err
	}
	for _, e := range mistakes {
		all.Findings = append(all.Findings, finding{severity, e.File, e.Line, e.Column, e.Text, e.Excerpt()})
	}
	return nil
}

// failed reports whether the command fails: there are errors or, if strict, warnings.
func (all *checkResult) failed(strict bool) bool {
	for _, f := range all.Findings {
		if strict || f.Severity == "error" {
			return true
		}
	}
	return false
}

// text returns the findings as compilers print them, then what each file holds that could be read. Of the
// findings of one file and severity it has the first mostFindings.
func (all *checkResult) text() string {
	var out strings.Builder
	inGroup := 0 // how many findings of the present file and severity there were
	for i, f := range all.Findings {
		inGroup++
		if inGroup <= mostFindings {
			e := policyfile.Error{File: f.File, Line: f.Line, Column: f.Column, Text: f.Text}
			if f.Severity == "warning" {
				e.Text = "warning: " + e.Text
			}

			fmt.Fprintln(&out, clean(e.Error()))
			out.WriteString(f.excerpt)
		}

		if i+1 == len(all.Findings) || all.Findings[i+1].File != f.File || all.Findings[i+1].Severity != f.Severity {
			if inGroup > mostFindings {
				fmt.Fprintf(&out, "%s: and %s\n", clean(f.File), stat.Count(inGroup-mostFindings, "more "+f.Severity, "more "+f.Severity+"s"))
			}
			inGroup = 0
		}
	}

	for _, t := range all.Files {
		fmt.Fprintf(&out, "%s: %s, %s\n", clean(t.File), stat.Count(t.Policies, "policy", "policies"), stat.Count(t.Tests, "test", "tests"))
		if text := t.untested(); text != "" {
			fmt.Fprintln(&out, clean(text))
		}
	}

	return out.String()
}

// mostFindings is how many errors of a file are printed, and how many warnings. --json has
// all of them.
const mostFindings = 20

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Example: "  throttle schema",
		Short:   "Print the JSON schema of a file of policies, for editors",
		Args:    argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(policyfile.Schema())
			return err
		},
	}
}
