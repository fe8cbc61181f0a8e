package throttle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestNamesAreText: a policy's name reaches Redis, JSON, metrics and terminals, so wherever
// policies are made it must be text that all of these can show.
func TestNamesAreText(t *testing.T) {
	ways := map[string]func(throttle.Policy) error{
		"New": func(p throttle.Policy) error {
			_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
			return err
		},
		"NewLimiter": func(p throttle.Policy) error {
			_, err := throttle.NewLimiter(memstore.New(), p)
			return err
		},
		"NewLimiters": func(p throttle.Policy) error {
			_, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
			return err
		},
		"SetPolicies": func(p throttle.Policy) error {
			return must(throttle.New(throttle.Config{Store: memstore.New()})).SetPolicies([]throttle.Policy{p})
		},
	}
	wrong := map[string]string{
		"caf\xe9":                `throttle: policy "caf\xe9": Name: is not UTF-8`,
		"a\x00b":                 `throttle: policy "a\x00b": Name: holds U+0000, which cannot be printed`,
		"a\x1b[2Jb":              `throttle: policy "a\x1b[2Jb": Name: holds U+001B, which cannot be printed`,
		"a\nb":                   `throttle: policy "a\nb": Name: holds U+000A, which cannot be printed`,
		"a\u202eb":               `throttle: policy "a\u202eb": Name: holds U+202E, which cannot be printed`,
		strings.Repeat("é", 201): `throttle: policy "` + strings.Repeat("é", 200) + `…": Name: has 201 characters: use 200 at the most`,
	}
	for way, try := range ways {
		for name, says := range wrong {
			err := try(throttle.Policy{Name: name, Limit: throttle.PerSecond(1)})
			require.EqualError(t, err, says, way)
			mistake, ok := errors.AsType[*throttle.ConfigError](err)
			require.True(t, ok)
			require.Equal(t, "Name", mistake.Field)
		}
		for _, name := range []string{"café", "短信 / 发送", "a b-c_{x}:%", strings.Repeat("é", 200)} {
			require.NoError(t, try(throttle.Policy{Name: name, Limit: throttle.PerSecond(1)}), way)
		}
	}
}
