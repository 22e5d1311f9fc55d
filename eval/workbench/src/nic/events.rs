//! The events to come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Picos;

/// What happens to a client, or to a node: the world says what the numbers mean.
pub(super) type Event = (u32, u32);

/// Events in the order of their times; of one time, in that in which they were pushed.
///
/// Nearly all come out of queues that serve in order, so that those of one queue are in order by
/// themselves: each has a lane, and the next event is the least of the lanes' first ones, which a
/// tournament finds. Others wait in a heap.
#[derive(Debug)]
pub(super) struct Events {
    lanes: Vec<VecDeque<(Order, Event)>>,
    /// Of each lane its first one's order, or [`NONE`], in the latter half; before it, each is the
    /// lesser of the two at twice its place.
    least: Vec<Order>,
    others: BinaryHeap<Reverse<(Order, Event)>>,
    pushed: u64,
}

/// Time, number and lane, in one comparison.
type Order = u128;

/// Bits of the lane: enough for two of every compute node.
const LANE_BITS: u32 = 20;

/// After all events.
const NONE: Order = Order::MAX;

impl Events {
    /// None yet, with at least `lanes` lanes.
    pub(super) fn new(lanes: usize) -> Self {
        let lanes = lanes.next_power_of_two();
        let (least, others) = (vec![NONE; 2 * lanes], BinaryHeap::new());
        Self { lanes: vec![VecDeque::new(); lanes], least, others, pushed: 0 }
    }

    /// An event will happen that most likely is not before the last one of this lane.
    #[inline]
    pub(super) fn push(&mut self, lane: usize, at: Picos, event: Event) {
        self.pushed += 1;
        let order = Order::from(at) << 64 | Order::from(self.pushed) << LANE_BITS | lane as Order;
        let events = &mut self.lanes[lane];
        match events.back() {
            Some((last, _)) if *last > order => return self.others.push(Reverse((order, event))),
            Some(_) => {}
            None => set_first(&mut self.least, lane, order),
        }
        events.push_back((order, event));
    }

    /// The next event and its time.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Picos, Event)> {
        let order = self.least[1];
        let (order, event) = match self.others.peek() {
            Some(Reverse((other, _))) if *other < order => self.others.pop()?.0,
            _ => {
                let lane = order as usize & ((1 << LANE_BITS) - 1);
                let events = self.lanes.get_mut(lane)?;
                let next = events.pop_front()?;
                let first = events.front().map_or(NONE, |(order, _)| *order);
                set_first(&mut self.least, lane, first);
                next
            }
        };
        Some(((order >> 64) as Picos, event))
    }
}

/// Says what a lane's first event is now, and who wins from there on.
#[inline]
fn set_first(least: &mut [Order], lane: usize, first: Order) {
    let mut at = least.len() / 2 + lane;
    least[at] = first;
    while at > 1 {
        at /= 2;
        least[at] = least[2 * at].min(least[2 * at + 1]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn events_come_in_the_order_of_time_and_of_pushing(
            steps in prop::collection::vec((0usize..3, 0u64..50, any::<bool>()), 0..300),
        ) {
            let (mut events, mut left, mut now) = (Events::new(3), Vec::new(), 0);
            for (number, (lane, after, pops)) in (0..).zip(steps) {
                events.push(lane, now + after, (number, 7));
                left.push((now + after, number));
                if pops {
                    left.sort_unstable();
                    let (at, number) = left.remove(0);
                    prop_assert_eq!(events.pop(), Some((at, (number, 7))));
                    now = at;
                }
            }
            left.sort_unstable();
            for (at, number) in left {
                prop_assert_eq!(events.pop(), Some((at, (number, 7))));
            }
            prop_assert_eq!(events.pop(), None);
        }
    }
}
