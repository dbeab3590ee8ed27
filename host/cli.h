/* What a person types: one function a command, with what stands behind its name. Each returns the
 * process's exit code: 0; 1 where it failed (said on stderr); 2 where the arguments make no sense.
 */
#ifndef TOLLGATE_CLI_H
#define TOLLGATE_CLI_H

int cli_reload(int argc, char **argv);
int cli_upgrade(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_publish(int argc, char **argv);
int cli_plugin(int argc, char **argv);
int cli_breaker(int argc, char **argv);
int cli_usage(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_exec(int argc, char **argv);
int cli_test(int argc, char **argv);
int cli_new(int argc, char **argv);
int cli_completion(int argc, char **argv);
int cli_version(int argc, char **argv);
int cli_help(int argc, char **argv);
int cli_man(int argc, char **argv);

#endif
