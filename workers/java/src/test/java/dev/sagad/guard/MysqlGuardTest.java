package dev.sagad.guard;

/** On MariaDB. */
class MysqlGuardTest extends GuardTest {

  MysqlGuardTest() {
    super(Guard.mysql());
  }

  @Override
  Databases start() throws Exception {
    return Databases.mariadb();
  }
}
