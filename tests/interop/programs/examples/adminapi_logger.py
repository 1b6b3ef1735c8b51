"""An administrator with a logger of its own, polled while a future is not done."""

import logging
import sys

from confluent_kafka.admin import AdminClient, NewTopic

logger = logging.getLogger("AdminClient")
logger.setLevel(logging.DEBUG)
logger.addHandler(logging.NullHandler())

admin = AdminClient({"bootstrap.servers": sys.argv[1], "debug": "all"}, logger=logger)
admin.create_topics([NewTopic("logged", 1, 1)])["logged"].result(20)
future = admin.list_consumer_groups(request_timeout=10)
while not future.done():
    admin.poll(0.1)
listed = future.result()
print([group.group_id for group in listed.valid if group.group_id == "logged"], listed.errors)
admin.poll(0)
