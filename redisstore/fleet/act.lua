-- Appends an act to the audit log.
--
-- KEYS  1 audit log
-- ARGV  1 act
--       2 how many acts are kept
--
-- Result: an empty list.

if not is_logged(KEYS[1], ARGV[1]) then
  log(KEYS[1], ARGV[1], ARGV[2])
end
return {}
