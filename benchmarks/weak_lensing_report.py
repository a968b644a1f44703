def print_table(console, results):
    for job, result in results:
        console.print(
            job.cell,
            {k: round(v, 4) for k, v in result.items() if isinstance(v, float)},
            result["epochs"],
        )
