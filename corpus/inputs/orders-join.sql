set work_mem = '1GB';
create table bought as select n, n % 100000 * 7919 % 100000 as customer, n % 100 as amount from generate_series(1, 300000) n;
create index bought_customer on bought(customer);
select count(*) from bought a join bought b using (customer) where a.amount < b.amount;
select count(*), pg_sleep(SECONDS) from (select k, md5(k::text), count(*) from generate_series(1, 600000) k group by 1, 2 offset 0) s;
