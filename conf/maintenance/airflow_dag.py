"""Maintenance by Airflow 3: every hour all jobs, and a reading of the whole store on Sundays.

The worker has sparktxn with its extras s3 and cli. A job that is killed does no harm, nor do two at once.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

STORE = "s3://bucket/shop"

with DAG("txnlog_maintain", schedule="17 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    BashOperator(
        task_id="maintain",
        bash_command=f"txnlog maintain --store {STORE} --apply --timeout 50m",
        execution_timeout=timedelta(minutes=55),
    )

with DAG("txnlog_verify", schedule="43 4 * * 0", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    BashOperator(task_id="verify", bash_command=f"txnlog verify --store {STORE} --timeout 10h")
