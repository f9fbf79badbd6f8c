//! One workload, one operation, every fault: `one_fault NAME NTH`.
use explorer::faults::{Kind, Reference, trial};
use explorer::workload::Workload;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let workload = Workload::named(&args[1]).ok_or("no such workload")?;
    let reference = Reference::of(&workload)?;
    println!("{workload}");
    if args.len() < 3 {
        for (n, o) in (1..).zip(&reference.operations) {
            println!("{n} {o:?}");
        }
        return Ok(());
    }
    let nth: u64 = args[2].parse()?;
    println!("{:?}", reference.operations[nth as usize - 1]);
    for kind in Kind::ALL {
        match trial(&workload, &reference, kind, nth) {
            Ok(o) => println!("{kind}: {o}"),
            Err(e) => println!("{kind}: FAILED {e}"),
        }
    }
    Ok(())
}
