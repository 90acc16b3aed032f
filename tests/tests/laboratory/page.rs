//! The report of runs, looked at in a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resync_harness::binary;
use resync_load::{
    Bound, Delivered, FaultReport, Finding, Judgement, Machine, Overhead, Published, Quantiles, Resources,
    RunResult, Rung, Second, Verdict,
};
use tempfile::tempdir;

use super::browser::{document, picture};

/// The first colour of curves, the paper of cards and the ground, light and dark, as `chart.css` and `style.css` have them.
const LIGHT: [[u8; 3]; 3] = [[0x1f, 0x6f, 0xeb], [0xff, 0xff, 0xff], [0xf4, 0xf6, 0xf9]];
const DARK: [[u8; 3]; 3] = [[0x6c, 0xb0, 0xff], [0x16, 0x1d, 0x26], [0x0d, 0x12, 0x19]];

fn verdict(what: &str, measured: f64, bound: f64, holds: bool) -> Verdict {
    let (what, unit) = (what.to_owned(), "ms".to_owned());
    Verdict { what, measured: Some(measured), bound, at_least: false, unit, holds }
}

/// A minute of a run in which the hub died once. Its numbers are the same after they were written as decimals and read again.
fn result(name: &str, slower: f64) -> RunResult {
    let latency = |p50: f64| Quantiles {
        count: 60_000,
        p50,
        p90: 2.0 * p50,
        p99: 5.0 * p50,
        p999: 9.0 * p50,
        max: 60.0 * p50,
    };
    let second = |at: u32| {
        let at = f64::from(at);
        let wave = 1.0 + 0.0625 * (at % 7.0);
        let p50 = slower * wave * if (30.0..34.0).contains(&at) { 40.0 } else { 1.25 };
        Second {
            at,
            acknowledged: 14,
            deliveries: 14_000,
            publish_p50: 0.75 * slower,
            publish_p99: 2.125 * slower * wave,
            delivery_p50: p50,
            delivery_p99: 4.0 * p50,
            delivery_max: 9.0 * p50,
            hub_cpu: 0.375 * slower * wave,
            hub_memory: 60_000_000,
            hub_store: 20_000_000,
            tool_cpu: 0.25 * wave,
            ..Second::default()
        }
    };
    let rung = |subscribers: u32| Rung {
        subscribers,
        topics: 7,
        hosts: 500,
        subscribing_per_second: 9_000.0,
        seconds: 60.0,
        published: Published::default(),
        delivered: Delivered {
            accepted: 840_000,
            per_second: 45_000.0 / slower,
            ratio_to_bound: Some(0.61 / slower),
            latency: latency(1.25 * slower),
            ..Delivered::default()
        },
        judgement: Judgement {
            owed: 840_000,
            delivered: 839_999,
            lost: 1,
            dropped: 1,
            findings: vec![Finding {
                name: "dropped".into(),
                count: 1,
                meaning: "owed to a subscriber who never got it, while others did".into(),
                examples: vec!["#12, acknowledged at 0.912 s, never came to subscriber <7>".into()],
            }],
            ..Judgement::default()
        },
        resources: Some(Resources {
            cpu_per_delivery: 17.0 * slower,
            memory_most: 60 << 20,
            ..Resources::default()
        }),
        overhead: Overhead::default(),
        faults: vec![FaultReport {
            kind: "kill".into(),
            from: 30.0,
            until: 30.4,
            listening: 30.42,
            taken_again_after: Some(0.02),
            impossible: None,
        }],
        taken_again_after: Some(0.02),
        series: (1..=60).map(second).collect(),
        slopes: None,
        verdicts: vec![
            verdict("delivery latency, p99", 6.25, 50.0, true),
            verdict("losses", 1.0, 0.0, false),
        ],
    };
    RunResult {
        tool: "0.1.0".into(),
        scenario: name.into(),
        about: "14 changes a second to a thousand subscribers".into(),
        seed: 14,
        began: 1_800_000_000,
        hub: "resync-hub 0.1.0 (fjall)".into(),
        machine: Machine {
            processor: "a processor".into(),
            cores: 2,
            memory: 24 << 30,
            kernel: "Linux 6".into(),
        },
        bound: Some(Bound { requests_per_second: 74_000.0, appends_per_second: 900.0 }),
        rungs: vec![rung(1_000), rung(10_000), rung(100_000)],
        passed: false,
    }
}

/// Writes these results and has the tool make a page of them.
fn page(folder: &Path, results: &[RunResult]) -> PathBuf {
    let names: Vec<_> = results
        .iter()
        .map(|result| {
            let path = folder.join(format!("{}.json", result.scenario));
            fs::write(&path, serde_json::to_string(result).unwrap()).unwrap();
            path
        })
        .collect();
    let page = folder.join("page.html");
    let output =
        Command::new(binary("resync-load")).arg("report").args(&names).arg("-o").arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    page
}

#[test]
fn a_report_is_drawn_by_a_browser_in_light_and_in_dark() {
    let folder = tempdir().unwrap();
    let page = page(folder.path(), &[result("fourteen", 1.0)]);
    for (is_dark, [curve, paper, ground]) in [(false, LIGHT), (true, DARK)] {
        let picture = picture(&page, is_dark, 1_200, 2_400);
        assert_eq!((picture.width, picture.height), (1_200, 2_400));
        assert!(picture.colours.len() > 100, "{} colours", picture.colours.len());
        assert!(picture.share(paper) > 0.3, "cards: {}", picture.share(paper));
        assert!(picture.share(ground) > 0.1, "the ground between them: {}", picture.share(ground));
        assert!(picture.share(curve) > 0.000_3, "curves: {}", picture.share(curve));
    }
}

#[test]
fn two_runs_stand_side_by_side_and_nothing_is_cut_off_on_a_phone() {
    let folder = tempdir().unwrap();
    let page = page(folder.path(), &[result("fourteen", 1.0), result("another", 1.7)]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        !html.contains("<script") && !html.contains("http-equiv") && !html.contains("src="),
        "nothing is loaded"
    );
    let phone = folder.path().join("phone.html");
    let inside = html.replace('&', "&amp;").replace('"', "&quot;");
    let measure = "const of = document.getElementById('phone').contentDocument, root = of.documentElement; \
        const texts = [...of.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height); \
        const outside = [...of.querySelectorAll('svg text')].filter(text => { \
            const box = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect(); \
            return box.left < chart.left - 1 || box.right > chart.right + 1; }).map(text => text.textContent); \
        document.title = JSON.stringify([root.scrollWidth, Math.min(...texts), of.querySelectorAll('svg').length, outside]);";
    let wrapper = format!(
        "<!DOCTYPE html><title>none</title><iframe id=\"phone\" style=\"width:390px;height:800px;border:0\" srcdoc=\"{inside}\" \
         onload=\"{measure}\"></iframe>"
    );
    fs::write(&phone, wrapper).unwrap();
    let document = document(&phone);
    let title = document.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    let (width, text, charts, outside): (f64, f64, usize, Vec<String>) = serde_json::from_str(title).unwrap();
    assert!(width <= 390.0, "it scrolls sideways: {width}");
    assert!(text >= 9.0, "letters of charts are {text} pixels high");
    assert!(outside.is_empty(), "text beyond its chart: {outside:?}");
    assert_eq!(charts, 10, "three of the ladder and seven over time");
    for what in
        ["A: fourteen", "B: another", "B / A", "does not hold", "subscriber &lt;7&gt;", "0.61", "1.70"]
    {
        assert!(html.contains(what), "{what}");
    }
}

#[test]
fn a_report_comes_with_its_pictures_and_with_its_figures_as_json() {
    let folder = tempdir().unwrap();
    let one = result("fourteen", 1.0);
    let page = page(folder.path(), std::slice::from_ref(&one));
    let again: Vec<RunResult> =
        serde_json::from_slice(&fs::read(page.with_extension("json")).unwrap()).unwrap();
    assert_eq!(again, [one]);
    let svg = fs::read_to_string(folder.path().join("page-delivery-latency.svg")).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("<style>") && svg.contains("prefers-color-scheme"),
        "{svg}"
    );
    let read = Command::new("xmllint")
        .args(["--noout", "page-delivery-latency.svg"])
        .current_dir(folder.path())
        .status();
    assert!(read.unwrap().success(), "it is XML");
    let wrong = Command::new(binary("resync-load"))
        .args(["report", "page.html"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("page.html is no result of `resync-load run --out`"), "{said}");
}
