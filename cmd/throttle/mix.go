package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/policyfile"
)

// mixForm is what a line of a mix looks like.
const mixForm = `"METHOD URL [WEIGHT] [LATENCY]", such as "GET https://api.example.com/v1/orders 3 250ms"`

// readMix returns what kinds of requests a job has: those that were said, those in a file, or
// the file's tests.
func readMix(c *cobra.Command, said []string, path string, headers []string, f *policyfile.File) (mix []simulation.Part, err error) {
	add := func(where, line string) error {
		p, err := parsePart(line, headers)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}

		mix = append(mix, p)
		return nil
	}

	for _, line := range said {
		if err := add("--request", line); err != nil {
			return nil, err
		}
	}

	if path != "" {
		if err := eachMixLine(c, path, add); err != nil {
			return nil, err
		}
	}

	if len(mix) == 0 {
		for _, t := range f.Tests {
			mix = append(mix, simulation.Part{Request: t.Request(), Weight: 1})
		}
	}

	if len(mix) == 0 {
		return nil, fmt.Errorf("there are no requests: name some with -r %s, in a file with --mix, or in the tests of the file", mixForm)
	}

	return mix, nil
}

// eachMixLine reads a file of a mix. Lines that begin with # are comments.
func eachMixLine(c *cobra.Command, path string, add func(where, line string) error) error {
	in, err := openInput(c, path)
	if err != nil {
		return err
	}

	defer in.Close()
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := add(fmt.Sprintf("%s:%d", path, n), line); err != nil {
			return err
		}
	}

	return lines.Err()
}

// parsePart parses one line of a mix.
func parsePart(line string, headers []string) (p simulation.Part, err error) {
	words := strings.Fields(line)
	p.Weight = 1
	if len(words) < 2 || len(words) > 4 {
		return p, fmt.Errorf("%q is not %s", line, mixForm)
	}

	for i, word := range words[2:] {
		if n, err := strconv.Atoi(word); err == nil && i == 0 && n > 0 && n <= 1_000_000 {
			p.Weight = n
		} else if d, err := time.ParseDuration(word); err == nil && d > 0 && p.Latency == 0 {
			p.Latency = d
		} else {
			return p, fmt.Errorf("%q: %q is neither a weight from 1 to 1000000 nor a latency such as 250ms", line, word)
		}
	}

	p.Request, err = newRequest(words[0], words[1], headers)
	return p, err
}
