package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCallsAtTheBeginOfFunctions(t *testing.T) {
	got, err := goWithCalls("a.go", []byte("package a\n\nfunc f() int { return 1 }\n\nfunc (t T) g() {\n\tf()\n}\n"))
	require.NoError(t, err)
	require.Equal(t, `package a; import entered_ "github.com/fleetthrottle/throttle/internal/lab/trace/entered"

func f() int { entered_.File("a.go"); return 1 }

func (t T) g() { entered_.File("a.go");
	f()
}
`, string(got))
	got, err = goWithCalls("b.go", []byte("package a\n\ntype T int\n"))
	require.NoError(t, err)
	require.Nil(t, got, "a file without functions stays as it is")

	lua := luaWithCalls("a.lua", []byte("local function f(a, b)\n  return function(x) return x end\nend\nfunction q.of(r)\nend\nlocal x = f(1)\n"))
	require.Equal(t, `local function f(a, b) redis.call('RPUSH', 'entered', 'a.lua')
  return function(x) return x end
end
function q.of(r) redis.call('RPUSH', 'entered', 'a.lua')
end
local x = f(1)
`, string(lua))
}

func TestVisitsInOrder(t *testing.T) {
	require.Equal(t, []visit{{"b", 2}, {"a", 1}}, visits([]string{"b", "b", "a", "b"}))
	require.Empty(t, visits(nil))
}
