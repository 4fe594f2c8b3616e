-- A shop: 20,000 customers, 300,000 orders with pseudo-random contents, two indexes, and questions.
PRAGMA cache_size = -200000;
PRAGMA journal_mode = MEMORY;
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE bought (id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, price REAL, what TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO customer SELECT i, 'customer ' || i, 'city ' || (i * 7919 % 501) FROM n;
WITH RECURSIVE n(i, r) AS (
    SELECT 1, 12345 UNION ALL SELECT i + 1, (r * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 300000)
INSERT INTO bought
SELECT i, 1 + (r >> 8) % 20000, (r >> 5) % 3650, ((r >> 3) % 100000) / 100.0, 'thing ' || ((r >> 7) % 9973) FROM n;
COMMIT;
CREATE INDEX bought_customer ON bought (customer, day);
CREATE INDEX bought_what ON bought (what);
SELECT city, count(*), round(sum(price), 2) AS total FROM bought JOIN customer ON customer.id = bought.customer
GROUP BY city ORDER BY total DESC LIMIT 5;
SELECT what, count(DISTINCT customer) AS buyers FROM bought GROUP BY what ORDER BY buyers DESC, what LIMIT 5;
SELECT count(*) FROM bought a JOIN bought b ON a.customer = b.customer AND b.day BETWEEN a.day AND a.day + 30;
UPDATE bought SET price = price * 1.1 WHERE what LIKE 'thing 1%';
DELETE FROM bought WHERE day < 200;
SELECT count(*), round(avg(price), 2) FROM bought;
