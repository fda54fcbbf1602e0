-- a column is added: it alone is read, with the key
select k, a from t where v > 1;
select k, a, s from t where v > 1;
columns(k): computes s;
SELECT `k`, `s__new` AS `s` FROM (SELECT * FROM (SELECT `k`, `v`, `s` AS `s__new` FROM t_new) WHERE `v` > 1 AND NOT `s__new` IS NULL);

-- a column is dropped: nothing is read
select k, a, s from t;
select k, a from t;
changes: drops s;

-- a column that the output determines
select k, a from t;
select k, a, a + 1 b from t;
columns(k): computes b from the output;
SELECT `k__out` AS `k`, `a__out` + 1 AS `b` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `a` AS `a__out` FROM v_old) WHERE NOT (`a__out` + 1) IS NULL);

-- a column is computed differently
select k, a + 1 b from t;
select k, a + 2 b from t;
none: every column is computed differently;

-- a column is renamed
select k, a from t;
select k, a b from t;
columns(k): renames a to b;
SELECT `k__out` AS `k`, `a__out` AS `b` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `a` AS `a__out` FROM v_old) WHERE NOT `a__out` IS NULL);
or, with columns renamed by reference, changes: renames a to b;

-- rows without a key are written again, from the output
select a, b from r;
select a c, b from r;
the whole output: renames a to c;
SELECT `a__out` AS `c`, `b__out` AS `b` FROM (SELECT `a` AS `a__out`, `b` AS `b__out` FROM v_old);
or, with columns renamed by reference, changes: renames a to c;

-- rows without a key lack a column
select a from r;
select a, b from r;
none: b cannot be computed from the stored output, whose rows have no key that both queries have;

-- columns that are stored with groups are dropped with the whole output
select k, sum(v) x, avg(a) y from t group by k;
select k, sum(v) + 1 x from t group by k;
the whole output: computes x from the output and drops y;
SELECT `k__out` AS `k`, `x__out` + 1 AS `x`, `_kept_rows__out` AS `_kept_rows`, `_kept_count___sum__out` AS `_kept_count___sum`, `_kept_sum___sum__out` AS `_kept_sum___sum` FROM (SELECT `k` AS `k__out`, `x` AS `x__out`, `_kept_rows` AS `_kept_rows__out`, `_kept_count___sum` AS `_kept_count___sum__out`, `_kept_sum___sum` AS `_kept_sum___sum__out` FROM v_old);
