// Orders of an OrderList against a plain vector.
#include "heddle/core/ir/edit/order_list.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace heddle {
namespace {

void ExpectOrder(const OrderList& list, const std::vector<uint32_t>& order) {
  ASSERT_EQ(list.size(), order.size());
  uint32_t at = OrderList::kNone;
  for (uint32_t entry : order) {
    EXPECT_EQ(list.Next(at), entry);
    EXPECT_EQ(list.Previous(entry), at);
    if (at != OrderList::kNone) {
      EXPECT_TRUE(list.Before(at, entry));
      EXPECT_FALSE(list.Before(entry, at));
    }
    at = entry;
  }
  EXPECT_EQ(list.Next(at), OrderList::kNone);
  EXPECT_EQ(list.Previous(OrderList::kNone), at);
}

TEST(OrderList, AnyChanges) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    size_t start = random() % 20;
    OrderList list(start);
    std::vector<uint32_t> order(start);
    for (size_t i = 0; i < start; ++i) order[i] = static_cast<uint32_t>(i);
    for (int step = 0; step < 300; ++step) {
      // kNone, and every entry.
      size_t place = random() % (order.size() + 1);
      uint32_t after = place == 0 ? OrderList::kNone : order[place - 1];
      if (order.empty() || random() % 2 == 0) {
        uint32_t fresh = list.AddAfter(after);
        EXPECT_EQ(fresh, order.size());
        order.insert(order.begin() + static_cast<ptrdiff_t>(place), fresh);
      } else {
        uint32_t entry = order[random() % order.size()];
        bool stays = entry == after || list.Previous(entry) == after;
        EXPECT_EQ(list.MoveAfter(entry, after), !stays);
        if (stays) continue;
        std::erase(order, entry);
        auto at = after == OrderList::kNone ? order.begin() : std::ranges::find(order, after) + 1;
        order.insert(at, entry);
      }
    }
    ExpectOrder(list, order);
    std::ranges::shuffle(order, random);
    list.Assign(order);
    ExpectOrder(list, order);
  }
}

// All at one place, where labels run out again and again. Minutes if every such time renumbered all.
TEST(OrderList, CrowdedPlaces) {
  constexpr uint32_t kMany = 200'000;
  for (bool forward : {true, false}) {
    for (uint32_t place : {OrderList::kNone, 0u, kMany / 2, kMany - 1}) {
      OrderList list(kMany);
      uint32_t last = place;
      for (uint32_t i = 0; i < kMany; ++i) {
        uint32_t fresh = list.AddAfter(forward ? last : place);
        if (last != OrderList::kNone) {
          EXPECT_EQ(list.Before(last, fresh), forward || i == 0);
        }
        last = fresh;
      }
      uint32_t count = 0;
      for (uint32_t at = list.Next(OrderList::kNone); list.Next(at) != OrderList::kNone;
           at = list.Next(at)) {
        count += list.Before(at, list.Next(at));
      }
      EXPECT_EQ(count, 2 * kMany - 1);
    }
  }
}

}  // namespace
}  // namespace heddle
