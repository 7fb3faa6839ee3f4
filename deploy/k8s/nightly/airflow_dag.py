"""The night of shaver as a DAG of Airflow, which waits for the Job that it creates.

Put this file and job.yaml next to each other into the folder of DAGs, and apply cronjob.yaml with
nightly.suspend set: it holds the night's configuration. Airflow's account needs a Role in the
namespace "shaver" that may create, get, list, watch and delete jobs, and list and get pods.

A training's DAG can start the night when the model is there, with a TriggerDagRunOperator. The
task fails if the Job does. It has no retries, because the Job has its own, and knows after which
exit codes another try would not help.
"""

from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.sdk import DAG  # in Airflow 2: from airflow import DAG

with DAG(
    dag_id="shaver_nightly",
    schedule="0 2 * * *",  # None, if only trainings start it
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # two nights at once in one folder are refused
):
    KubernetesJobOperator(
        task_id="night",
        namespace="shaver",
        job_template_file=str(Path(__file__).with_name("job.yaml")),
        base_container_name="nightly",  # the Job's failure policy names this container
        automount_service_account_token=False,
        completions=1,
        wait_until_job_complete=True,
        job_poll_interval=30,
        get_logs=False,  # a Job may have several pods; kubectl logs shows them
        retries=0,
        execution_timeout=timedelta(hours=24),
    )
