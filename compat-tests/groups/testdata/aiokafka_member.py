"""A member of a group: prints the value of each record, then commits. Arguments: address, group, topic, client id."""

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError


async def main(address, group, topic, name):
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=8000,
        heartbeat_interval_ms=1000,
        fetch_max_wait_ms=500,
    )
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await consumer.start()
    while not told.is_set():
        batches = await consumer.getmany(timeout_ms=300, max_records=500)
        for records in batches.values():
            for record in records:
                print(record.value.decode())
        sys.stdout.flush()
        if batches:
            try:
                await consumer.commit()
            except KafkaError as e:  # a rebalance came between: another member reads these again
                print(e, file=sys.stderr)
    await consumer.stop()


asyncio.run(main(*sys.argv[1:]))
