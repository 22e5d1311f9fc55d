//! Settings that rows have of what is reached over sockets, and Jakiro beside FPCache.

use super::*;

#[test]
fn jakiro_answers_by_fetched_results_and_by_server_reply() {
    for (data, options) in [
        ("uniform:4K", "--transport shm"),
        ("uniform:4K", "--transport unix --batch 32"),
        ("words:4K", "--transport shm --batch 8 --value-bytes vary:5000 --negative 0.3"),
    ] {
        let rows = rows_of(data, &format!("--system jakiro,jakiro-reply --lookups 1K {options}"));
        let systems: Vec<&str> = rows.iter().filter_map(|row| row["system"].as_str()).collect();
        assert_eq!(systems, ["jakiro", "jakiro-reply"]);
        let over = options.split(' ').nth(1);
        assert!(rows.iter().all(|row| row["transport"].as_str() == over), "{rows:?}");
        for row in &rows {
            assert_eq!(
                (&row["mismatches"], &row["lookups"]),
                (&Value::from(0), &Value::from(1_000)),
                "{row}"
            );
            assert!(number(row, "load_s") > 0.0);
        }
    }
    let output = run("run --data uniform:4K --system jakiro --transport local");
    assert!(!output.status.success() && stderr(&output).contains("--transport"), "{}", stderr(&output));
}

#[test]
fn rows_say_what_decides_them_over_sockets_and_where_lengths_vary() {
    let options = "--transport tcp --spin 20us --value-bytes vary:100 --inline-bytes 64 --lookups 1K";
    let rows = rows_of("uniform:4K", options);
    assert_eq!((&rows[0]["spin_us"], &rows[0]["inline_bytes"]), (&20.0.into(), &64.into()), "{}", rows[0]);
    let rows = rows_of("uniform:4K", "--transport tcp --lookups 1K");
    assert_eq!((&rows[0]["spin_us"], &rows[0]["inline_bytes"]), (&50.0.into(), &Value::Null), "{}", rows[0]);
}
